//! As many open descriptors as the system lets a process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open descriptors to the most that this process may set. A shell gives 1,024, and servers that
/// admit more connections than that would answer nobody any more, those included whom they know.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = ?limit.current, "the limit of open descriptors stays as it is");
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
