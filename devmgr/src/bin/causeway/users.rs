//! `causeway users`: the device manager's users and their permissions.
//!
//! This verb makes no tokens and no certificates (`tokens` and `certs` do). A user with a certificate
//! need not be listed here; then they have no special permissions.

use causeway_proto::manager::{DeleteUserRequest, ListUsersRequest, User as UserWord};
use clap::{Subcommand, ValueEnum};

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::{Removed, User};
use crate::text::{Table, quoted};

/// Arguments of `users`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show all users (the default)
    List,
    /// Add a user, who can then be given tokens
    Add {
        /// The user's name, as in their certificate
        name: String,
        /// A group whose quota the user shares; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Make the user an administrator
        #[arg(long)]
        admin: bool,
        /// Make the user a node, which may join the device manager and nothing else
        #[arg(long, conflicts_with = "admin")]
        node: bool,
    },
    /// Remove a user, revoke their tokens and end their leases
    Remove {
        /// The user
        name: String,
    },
    /// Set the groups whose quotas a user shares; without any, the user leaves all groups
    Groups {
        /// The user
        name: String,
        /// All groups of the user
        groups: Vec<String>,
    },
    /// Set whether a user is an administrator
    Admin {
        /// The user
        name: String,
        /// Whether the user is an administrator
        is: YesNo,
    },
    /// Set whether a user is a node, which joins the device manager and does nothing else
    Node {
        /// The user
        name: String,
        /// Whether the user is a node
        is: YesNo,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    match arguments.what.as_ref().unwrap_or(&What::List) {
        What::List => {
            let users = context.read_from_manager(async |manager| users(manager).await)?;
            let users: Vec<User> = users.into_iter().map(User::from).collect();
            context.print(&users, |users| list(users))
        }
        What::Add {
            name,
            groups,
            admin,
            node,
        } => {
            let user = UserWord {
                name: name.clone(),
                groups: groups.clone(),
                admin: *admin,
                node: *node,
            };
            let user = context.with_manager(async |manager| add(manager, user).await)?;
            context.print(&User::from(user), |user| {
                format!(
                    "user {} was added. Next: causeway tokens create {name}, or causeway certs {} {name}\n",
                    user.name,
                    if user.node { "node" } else { "client" },
                    name = quoted(&user.name),
                )
            })
        }
        What::Remove { name } => {
            let request = DeleteUserRequest { name: name.clone() };
            context.with_manager(async |manager| {
                let request = manager.request(request);
                manager
                    .answer_to(manager.admin().delete_user(request))
                    .await
            })?;
            let removed = vec![name.clone()];
            context.print(&Removed { removed }, |_| {
                format!("user {name} was removed; their tokens are revoked and their leases end\n")
            })
        }
        What::Groups { name, groups } => change(context, name, |user| {
            user.groups.clone_from(groups);
        }),
        What::Admin { name, is } => change(context, name, |user| {
            user.admin = *is == YesNo::Yes;
            // A user is an administrator or a node, never both.
            user.node &= !user.admin;
        }),
        What::Node { name, is } => change(context, name, |user| {
            user.node = *is == YesNo::Yes;
            user.admin &= !user.node;
        }),
    }
}

/// Lists all users.
pub(crate) async fn users(manager: &Connection) -> Result<Vec<UserWord>, Failure> {
    let request = manager.request(ListUsersRequest {});
    let list = manager
        .answer_to(manager.admin().list_users(request))
        .await?;
    Ok(list.users)
}

async fn put(manager: &Connection, user: UserWord) -> Result<UserWord, Failure> {
    let request = manager.request(user.clone());
    manager.answer_to(manager.admin().put_user(request)).await?;
    Ok(user)
}

async fn add(manager: &Connection, user: UserWord) -> Result<UserWord, Failure> {
    let known = users(manager).await?;
    if known.iter().any(|known| known.name == user.name) {
        return Err(
            Failure::new(format!("there is a user {} already", user.name)).cure(format!(
                "change the user with causeway users groups {0} …, causeway users admin {0} … or causeway users node \
                 {0} …",
                user.name
            )),
        );
    }
    put(manager, user).await
}

/// Changes an existing user.
fn change(context: &Context, name: &str, how: impl FnOnce(&mut UserWord)) -> Outcome {
    let user = context.with_manager(async |manager| {
        let mut known = users(manager).await?.into_iter();
        let Some(mut user) = known.find(|known| known.name == name) else {
            return Err(Failure::new(format!("there is no user {name}"))
                .cure("causeway users list shows all, causeway users add makes one"));
        };
        how(&mut user);
        put(manager, user).await
    })?;
    let user = User::from(user);
    context.print(&user, |user| list(std::slice::from_ref(user)))
}

fn list(users: &[User]) -> String {
    if users.is_empty() {
        return "There is no user. causeway users add makes one.\n".to_owned();
    }
    let mut table = Table::new(["USER", "MAY", "GROUPS"]);
    for user in users {
        let may = match (user.admin, user.node) {
            (true, _) => "everything",
            (_, true) => "join as a node",
            _ => "use devices",
        };
        table.row([user.name.clone(), may.to_owned(), user.groups.join(", ")]);
    }
    table.to_string()
}
