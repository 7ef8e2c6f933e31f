//! The wire between client, daemon and device manager.
