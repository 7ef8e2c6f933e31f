//! Raises the limit of open file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open file descriptors to the maximum that this process may set. A shell's default is
/// 1,024. A server that admits more connections than that could accept no other one, not even from
/// authenticated clients.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = ?limit.current, "the limit of open file descriptors cannot be raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_becomes_the_most_that_is_allowed() {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(256),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, few).unwrap();
        raise_descriptors();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
