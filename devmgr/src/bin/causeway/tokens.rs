//! `causeway tokens`: the credentials of users without a certificate.
//!
//! The manager keeps only a digest, so a token is shown once, when it is created. It is printed alone on
//! standard output, or written to a file that only its owner can read. Invariant: the token is in no
//! argument and in no error message.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway_proto::manager::{
    CreateTokenRequest, GetManagerRequest, ListTokensRequest, ManagerInfo, RevokeTokenRequest,
};
use causeway_security::Secret;
use clap::Subcommand;

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::{NewToken, Removed, Token};
use crate::new_file::{NewFile, SECRET};
use crate::say::say;
use crate::text::{Table, moment, printable};

/// Arguments of `tokens`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create a token and print it; it is shown only once
    Create {
        /// The token's user [default: you]
        user: Option<String>,
        /// A name for the token
        #[arg(long, default_value = "", hide_default_value = true)]
        label: String,
        /// Validity, such as 90d or 12h [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = time)]
        expires: Option<Duration>,
        /// Write the token to this new file, which only you can read, instead of printing it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Show your tokens by their ids; administrators see all (the default)
    List {
        /// Show the tokens of this user only
        #[arg(long)]
        user: Option<String>,
    },
    /// Revoke tokens
    Revoke {
        /// The tokens' ids from `tokens list`, or unambiguous prefixes
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    match arguments
        .what
        .as_ref()
        .unwrap_or(&What::List { user: None })
    {
        What::Create {
            user,
            label,
            expires,
            out,
        } => {
            let request = CreateTokenRequest {
                user: user.clone().unwrap_or_default(),
                label: label.clone(),
                lifetime_ms: expires.map_or(Ok(0), lifetime)?,
            };
            create(context, request, out.as_deref())
        }
        What::List { user } => {
            let tokens =
                context.read_from_manager(async |manager| tokens(manager, user.clone()).await)?;
            context.print(&tokens, |tokens| text(tokens, SystemTime::now()))
        }
        What::Revoke { ids } => {
            let revoked = context.with_manager(async |manager| {
                let known = tokens(manager, None).await?;
                // All ids are looked up first, so that a mistyped one revokes nothing.
                let meant = ids.iter().map(|said| meant(&known, said));
                let meant = meant.collect::<Result<Vec<_>, _>>()?;
                for token in &meant {
                    let token_id = token.id.clone();
                    let request = manager.request(RevokeTokenRequest { token_id });
                    manager
                        .answer_to(manager.admin().revoke_token(request))
                        .await?;
                }
                Ok(meant
                    .into_iter()
                    .map(|of| (of.id.clone(), of.user.clone()))
                    .collect::<Vec<_>>())
            })?;
            let removed = revoked.iter().map(|(id, _)| id.clone()).collect();
            context.print(&Removed { removed }, |_| {
                let line = |(id, user): &(String, String)| {
                    format!("revoked: {id} of {}\n", printable(user))
                };
                revoked.iter().map(line).collect()
            })
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text);
    duration.map_err(|_| "invalid duration; expected e.g. `90d` or `12h`".to_owned())
}

/// Converts a lifetime for the wire, where 0 means unlimited.
fn lifetime(of: Duration) -> Result<u64, Failure> {
    let milliseconds = u64::try_from(of.as_millis()).ok().filter(|&ms| ms != 0);
    milliseconds.ok_or_else(|| {
        Failure::new("--expires must be more than 0").cure("such as 90d, 12h or 30min")
    })
}

/// The tokens of this user. Without one, the caller's own, or all of them for an administrator.
async fn tokens(manager: &Connection, user: Option<String>) -> Result<Vec<Token>, Failure> {
    let user = match user {
        Some(user) => user,
        // Empty means all.
        None => match who(manager).await? {
            who if who.admin => String::new(),
            who => who.user,
        },
    };
    let request = manager.request(ListTokensRequest { user });
    let list = manager
        .answer_to(manager.admin().list_tokens(request))
        .await?;
    Ok(list.tokens.into_iter().map(Token::from).collect())
}

/// The token with this id or unambiguous prefix.
fn meant<'a>(known: &'a [Token], said: &str) -> Result<&'a Token, Failure> {
    let mut begin = known
        .iter()
        .filter(|of| !said.is_empty() && of.id.starts_with(said));
    match (begin.next(), begin.next()) {
        (Some(token), None) => Ok(token),
        (None, _) => Err(Failure::new(format!("unknown token: {said}"))
            .cure("causeway tokens list shows those that there are")),
        _ => Err(
            Failure::new(format!("several tokens' ids begin with {said}"))
                .cure("give a longer prefix; causeway tokens list shows the ids"),
        ),
    }
}

/// The caller's identity at the manager.
pub(crate) async fn who(manager: &Connection) -> Result<ManagerInfo, Failure> {
    let request = manager.request(GetManagerRequest {});
    manager
        .answer_to(manager.admin().get_manager(request))
        .await
}

fn create(context: &Context, mut request: CreateTokenRequest, out: Option<&Path>) -> Outcome {
    // The file is created first, so that no token is created that cannot be saved.
    let file = out.map(|path| NewFile::create(path.to_owned(), SECRET));
    let file = file.transpose()?;
    let (made, user) = context.with_manager(async |manager| {
        if request.user.is_empty() {
            request.user = who(manager).await?.user;
        }
        let user = request.user.clone();
        let request = manager.request(request);
        let made = manager
            .answer_to(manager.admin().create_token(request))
            .await?;
        Ok((made, user))
    })?;
    let token = Secret::new(made.token + "\n");
    let id = made.token_id;
    let file = file.map(|file| file.write(token.reveal()));
    let file = file.transpose().map_err(|failure| {
        failure.cure(format!(
            "causeway tokens revoke {id}: nobody has that token"
        ))
    })?;
    if !context.json() && file.is_none() {
        say!(
            "Token {id} of {user}, which is not shown again. Keep it in a file that others cannot read, named by \
             --token-file, CAUSEWAY_TOKEN_FILE or token_file in servers.toml:"
        );
    }
    let line = String::from_utf8_lossy(token.reveal());
    let new = NewToken {
        id: &id,
        user: &user,
        token: file.is_none().then(|| line.trim_end()),
        file: file.as_deref(),
    };
    context.print(&new, |new| match (new.token, new.file) {
        (Some(token), _) => format!("{token}\n"),
        (None, file) => {
            let file = file.unwrap_or(Path::new("")).display();
            format!("token {} of {} is in {file}\n", new.id, new.user)
        }
    })
}

fn text(tokens: &[Token], now: SystemTime) -> String {
    if tokens.is_empty() {
        return "There is no token.\n".to_owned();
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_millis());
    let mut table = Table::new(["ID", "USER", "EXPIRES", "LABEL"]);
    for token in tokens {
        let until = match token.expires_unix_ms {
            None => "never".to_owned(),
            Some(at) if u128::from(at) <= now => "expired".to_owned(),
            Some(at) => moment(at),
        };
        let (id, user) = (token.id.clone(), token.user.clone());
        table.row([id, user, until, token.label.clone()]);
    }
    table.to_string()
}
