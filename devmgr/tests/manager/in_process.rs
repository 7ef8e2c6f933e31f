//! A manager in this process, over a store that the test can look into.

use causeway_devmgr::service::{self, Running};
use causeway_devmgr::settings::{ConfigFile, Flags, Settings};
use causeway_devmgr::store::Store;

/// At a port of its own, over this store.
pub(crate) async fn serve(store: Box<dyn Store>) -> Running {
    serve_with(Flags::default(), store).await
}

/// The same, with these flags.
pub(crate) async fn serve_with(mut flags: Flags, store: Box<dyn Store>) -> Running {
    flags.server.listen = vec!["127.0.0.1:0".to_owned()];
    let file = ConfigFile::parse("none".as_ref(), String::new()).unwrap();
    let settings = Settings::combine(&flags, &file).unwrap();
    service::start(&settings, store).await.unwrap()
}
