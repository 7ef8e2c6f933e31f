//! Daemons with TLS and a token, and a CA made for the process.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use causeway_security::{Authority, Token};

/// Turns this on, in every test program with real daemons. All of them pass with it.
pub const VARIABLE: &str = "CAUSEWAY_TEST_TLS";

/// The files of one CA, one node and one user.
pub struct Secured {
    pub folder: PathBuf,
    pub token: Token,
}

/// Makes the daemons of this process use TLS, and configures the library for them. Must precede everything else.
pub fn secure() -> &'static Secured {
    static SECURED: OnceLock<Secured> = OnceLock::new();
    SECURED.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("secured-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let secured = Secured::make(folder);
        let at = |name: &str| secured.folder.join(name);
        for (variable, value) in [
            (VARIABLE, PathBuf::from("1")),
            ("CAUSEWAY_CA", at("ca.pem")),
            ("CAUSEWAY_TOKEN_FILE", at("token")),
            // Otherwise no large transfer would use TLS.
            ("CAUSEWAY_SHARED_MEMORY", PathBuf::from("0")),
        ] {
            // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
            unsafe { std::env::set_var(variable, value) };
        }
        secured
    })
}

/// Returns the arguments of a daemon: nothing, unless TLS is requested.
pub fn arguments() -> Vec<String> {
    if std::env::var_os(VARIABLE).is_none() {
        return Vec::new();
    }
    secure().arguments()
}

impl Secured {
    fn make(folder: PathBuf) -> Secured {
        let day = Duration::from_secs(86_400);
        let valid = SystemTime::now() - day..SystemTime::now() + day;
        let (authority, ca) = Authority::generate("test", valid.clone()).expect("a CA");
        let node = authority
            .node(&["127.0.0.1".to_owned()], valid)
            .expect("a certificate");
        let token = Token::generate();
        write(&folder.join("ca.pem"), ca.certificate.as_bytes());
        write(&folder.join("node.pem"), node.certificate.as_bytes());
        write(&folder.join("node.key"), node.key.reveal());
        write(&folder.join("token"), token.reveal().as_bytes());
        write(
            &folder.join("tokens"),
            format!("{} tester\n", token.hash()).as_bytes(),
        );
        Secured { folder, token }
    }

    fn arguments(&self) -> Vec<String> {
        let files = [
            ("--tls-certificate", "node.pem"),
            ("--tls-key", "node.key"),
            ("--tokens", "tokens"),
        ];
        let argument = |(flag, file): (&str, &str)| {
            [
                flag.to_owned(),
                self.folder.join(file).display().to_string(),
            ]
        };
        files.into_iter().flat_map(argument).collect()
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .expect("the file's mode");
}
