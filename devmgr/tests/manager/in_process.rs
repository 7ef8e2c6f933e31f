//! A manager in this process, over a store that the test can read.

use causeway_devmgr::service::{self, RunningManager};
use causeway_devmgr::settings::{ConfigFile, Flags, Settings};
use causeway_devmgr::store::Store;

/// Serves this store at a port of its own.
pub(crate) async fn serve(store: Box<dyn Store>) -> RunningManager {
    serve_with(Flags::default(), store).await
}

/// Serves this store with these flags.
pub(crate) async fn serve_with(flags: Flags, store: Box<dyn Store>) -> RunningManager {
    serve_configured("", flags, store).await
}

/// Serves this store with these flags and this configuration file.
pub(crate) async fn serve_configured(
    text: &str,
    mut flags: Flags,
    store: Box<dyn Store>,
) -> RunningManager {
    flags.server.listen = vec!["127.0.0.1:0".to_owned()];
    let file = ConfigFile::parse("none".as_ref(), text.to_owned()).unwrap();
    let settings = Settings::combine(&flags, &file).unwrap();
    service::start(&settings, store).await.unwrap()
}
