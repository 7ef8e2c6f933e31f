//! The dashboard: pages for browsers, read only, on a listener of their own.
//!
//! - [`access`]: who looks. [`feed`]: one snapshot a second for all who look.
//! - [`crate::dashboard`]: what they see, and the files of the page.
//!
//! The files are public; what they show needs a caller. A caller sees what their calls to the gRPC services would
//! show. Invariants: permissions are those of the directory at each snapshot. Without `[dashboard]` nothing here runs.

mod access;
mod feed;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use causeway_serving::gate::Peer;
use causeway_serving::is_loopback;
use causeway_serving::pages::{Pages, Stay};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use self::access::Cookie;
use self::feed::{Event, Feed, Published, Source, event};
use super::admin::{ManagerListing, may_see_all};
use super::authentication::{Authenticator, as_user};
use super::input::Input;
use super::leases::whose;
use super::links::ReportedLinks;
use super::watching::standby;
use crate::dashboard::files;
use crate::dashboard::view::Audience;
use crate::etcd::{Standing, Tenure};
use crate::identity::Caller;
use crate::policy::UserName;
use crate::settings::Visible;

/// The policy for everything that a page loads.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";
/// Size limit of a form, in bytes.
const MAX_FORM: usize = 4 << 10;
/// Limit of the streams of one user, if callers are authenticated.
const STREAMS: usize = 32;
/// Size of what is sent at once, in bytes. Each viewer has a few of these in memory.
const SLICE: usize = 16 << 10;
/// Time after which a viewer is slow that is still taking an event.
const SLOW_AFTER: Duration = Duration::from_secs(5);
/// Time in which a viewer must take one event.
const EVENT_WITHIN: Duration = Duration::from_secs(120);
/// Silence after which a comment says that the stream lives.
const COMMENT_AFTER: Duration = Duration::from_secs(2);
/// The comment.
const COMMENT: &[u8] = b":\n\n";
/// Longest time of a stream. The next connection checks the client's certificate anew.
const LONGEST: Duration = Duration::from_secs(3600);

/// The dashboard. Clones share its state. See the module.
#[derive(Clone)]
pub(super) struct Dashboard(Arc<Shared>);

struct Shared {
    /// The state that is served at present. `None`: this manager stands by.
    reign: Mutex<Option<Arc<Reign>>>,
    /// About the other managers, if there are any.
    standing: Option<watch::Receiver<Standing>>,
    /// The URL of the leader's dashboard, if this manager stands by and knows it.
    leaders: Mutex<Option<String>>,
    cookie: Cookie,
    authenticates: bool,
    /// Whether only this machine can reach the dashboard.
    is_local: bool,
}

/// What a serving manager shows.
pub(super) struct Served {
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) authenticator: Authenticator,
    pub(super) visible: Visible,
    pub(super) managers: ManagerListing,
    pub(super) links: ReportedLinks,
    pub(super) tenure: Tenure,
}

struct Reign {
    authenticator: Authenticator,
    visible: Visible,
    tenure: Tenure,
    feed: Arc<Feed>,
    streams: Streams,
    source: tokio::task::JoinHandle<()>,
}

impl Drop for Reign {
    fn drop(&mut self) {
        // The feed ends with its source, and each viewer's stream with the feed.
        self.source.abort();
    }
}

impl Dashboard {
    pub(super) fn new(
        address: SocketAddr,
        is_secure: bool,
        authenticates: bool,
        standing: Option<watch::Receiver<Standing>>,
    ) -> Dashboard {
        Dashboard(Arc::new(Shared {
            reign: Mutex::default(),
            standing,
            leaders: Mutex::default(),
            cookie: Cookie::new(address.port(), is_secure),
            authenticates,
            is_local: is_loopback(&address),
        }))
    }

    /// Shows another state, or none, from now on. All streams end.
    pub(super) fn set(&self, served: Option<Served>) {
        let reign = served.map(|served| {
            let feed = Arc::new(Feed::new());
            let source = Source {
                owner: served.owner,
                managers: served.managers,
                links: served.links,
                feed: Arc::clone(&feed),
            };
            Arc::new(Reign {
                authenticator: served.authenticator,
                visible: served.visible,
                tenure: served.tenure,
                feed,
                streams: Streams::default(),
                source: tokio::spawn(source.run()),
            })
        });
        *self.0.reign.lock() = reign;
    }

    /// Says where the leader's dashboard is, while this manager stands by.
    pub(super) fn set_leaders(&self, url: Option<String>) {
        *self.0.leaders.lock() = url;
    }

    /// Answers browsers. Never returns.
    pub(super) async fn serve(self, pages: Pages) {
        let router = Router::new()
            .route("/", get(|| file(files::PAGE)))
            .route("/page.js", get(|| file(files::SCRIPT)))
            .route("/trace_file.js", get(|| file(files::TRACE_FILE)))
            .route("/trace_view.js", get(|| file(files::TRACE_VIEW)))
            .route("/page.css", get(|| file(files::STYLE)))
            .route("/icon.svg", get(|| file(files::ICON)))
            .route("/sign-in", get(|| form("")).post(sign_in))
            .route("/sign-out", post(sign_out))
            .route("/session", get(session))
            .route("/events", get(events))
            .layer(DefaultBodyLimit::max(MAX_FORM))
            .layer(from_fn_with_state(self.clone(), guard))
            .with_state(self);
        pages.serve(router).await;
    }

    fn reign(&self) -> Result<Arc<Reign>, Refusal> {
        let reign = self.0.reign.lock().clone();
        reign.filter(|of| of.tenure.holds()).ok_or_else(|| {
            let standing = self.0.standing.as_ref().map(|of| of.borrow().clone());
            let leaders = self.0.leaders.lock().clone();
            match standing {
                Some(standing) => Refusal::StandsBy(standing, leaders),
                None => Refusal::Stopping,
            }
        })
    }

    /// The caller of a request, with what they see.
    fn caller(
        &self,
        reign: &Reign,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<(Caller, Audience), Refusal> {
        let caller = self.0.cookie.caller(&reign.authenticator, headers, peer);
        let caller = caller.map_err(|not| Refusal::NotKnown(not.to_string()))?;
        let audience = audience(reign.visible, &caller)?;
        Ok((caller, audience))
    }
}

/// The number of each user's streams.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<HashMap<UserName, usize>>>);

/// One stream of a user, which counts as long as the value lives.
struct Counted {
    streams: Streams,
    user: UserName,
}

impl Streams {
    /// Counts one more. `None`: the user has as many as they may.
    fn count(&self, user: &UserName) -> Option<Counted> {
        let mut all = self.0.lock();
        let number = all.entry(user.clone()).or_default();
        if *number >= STREAMS {
            return None;
        }
        *number += 1;
        Some(Counted {
            streams: self.clone(),
            user: user.clone(),
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.streams.0.lock();
        if let Some(number) = all.get_mut(&self.user) {
            *number -= 1;
            if *number == 0 {
                all.remove(&self.user);
            }
        }
    }
}

/// What a caller sees.
fn audience(visible: Visible, caller: &Caller) -> Result<Audience, Refusal> {
    as_user(caller.clone()).map_err(|status| Refusal::Forbidden(status.message().to_owned()))?;
    Ok(match whose(visible, caller) {
        Some(own) => Audience::Own(own),
        None if may_see_all(visible, caller.clone()).is_ok() => Audience::All {
            managers: caller.admin,
        },
        None => Audience::Own(caller.user.clone()),
    })
}

/// Why a request gets nothing.
enum Refusal {
    NotKnown(String),
    Forbidden(String),
    Full,
    /// This manager is the only one, and its reign is over or has not begun.
    Stopping,
    /// With the URL of the leader's dashboard.
    StandsBy(Standing, Option<String>),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason, dashboard) = match self {
            Refusal::NotKnown(reason) => (StatusCode::UNAUTHORIZED, reason, None),
            Refusal::Forbidden(reason) => (StatusCode::FORBIDDEN, reason, None),
            Refusal::Full => {
                let reason =
                    "too many pages look at this dashboard; close some, or try again later";
                (StatusCode::SERVICE_UNAVAILABLE, reason.to_owned(), None)
            }
            Refusal::Stopping => {
                let reason = "this device manager is starting or stopping".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, reason, None)
            }
            Refusal::StandsBy(standing, leaders) => {
                let reason = format!("this device manager is a {}", standby(&standing));
                (StatusCode::SERVICE_UNAVAILABLE, reason, leaders)
            }
        };
        (
            code,
            data(&json!({ "reason": reason, "dashboard": dashboard })),
        )
            .into_response()
    }
}

/// Refuses requests of other sites' pages, and puts the policy on each answer.
async fn guard(State(dashboard): State<Dashboard>, request: Request, next: Next) -> Response {
    let (path, headers) = (request.uri().path(), request.headers());
    // Links of other sites may lead to the page, which shows nothing by itself.
    let is_open = request.method().is_safe() && !matches!(path, "/session" | "/events");
    let mut answer = if !is_open && !access::is_own(request.method(), headers) {
        // With the form, because that is what such a request most often was.
        let answer = form("This request comes from a page of another site.").await;
        (StatusCode::FORBIDDEN, answer).into_response()
    } else if dashboard.0.is_local
        && !dashboard.0.authenticates
        && !access::names_an_address(headers)
    {
        let text = "this dashboard does not authenticate, so it answers to addresses and to `localhost` only\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, browsers hide the origin of the dashboard's own forms, too.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn file((kind, text): files::File) -> impl IntoResponse {
    ([(CONTENT_TYPE, kind)], text)
}

fn data(value: &Value) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, "application/json")], value.to_string())
}

async fn form(sentence: &'static str) -> impl IntoResponse {
    let (kind, text) = files::sign_in(sentence);
    ([(CONTENT_TYPE, kind)], text)
}

/// Leads the browser to another page of the dashboard.
fn lead(to: &'static str, cookie: Option<HeaderValue>) -> Response {
    let mut answer = (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response();
    answer
        .headers_mut()
        .extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    answer
}

async fn sign_in(State(dashboard): State<Dashboard>, body: Bytes) -> Response {
    let reign = match dashboard.reign() {
        Ok(reign) => reign,
        // The page says why nobody is served, and follows what happens.
        Err(_) => return lead("/", None),
    };
    let token = access::token_in(&body);
    let caller = token
        .as_ref()
        .and_then(|token| access::by_token(&reign.authenticator, token).ok());
    let (Some(token), Some(caller)) = (token, caller) else {
        let sentence = "This token is unknown, was revoked or has expired.";
        return (StatusCode::FORBIDDEN, form(sentence).await).into_response();
    };
    if audience(reign.visible, &caller).is_err() {
        let sentence = "This token is that of a node, which may join and nothing else.";
        return (StatusCode::FORBIDDEN, form(sentence).await).into_response();
    }
    lead("/", dashboard.0.cookie.given(&token, &caller))
}

async fn sign_out(State(dashboard): State<Dashboard>) -> Response {
    lead("/sign-in", dashboard.0.cookie.taken())
}

async fn session(
    State(dashboard): State<Dashboard>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    let reign = dashboard.reign()?;
    let (caller, audience) = dashboard.caller(&reign, &headers, &peer)?;
    Ok(data(&json!({
        "user": caller.user.to_string(),
        "admin": caller.admin,
        "authenticates": reign.authenticator.authenticates(),
        "by_token": matches!(caller.shown, crate::identity::Shown::Token(_)),
        "sees_all": matches!(audience, Audience::All { .. }),
    })))
}

async fn events(
    State(dashboard): State<Dashboard>,
    Extension(peer): Extension<Peer>,
    Extension(stay): Extension<Stay>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    let reign = dashboard.reign()?;
    let (caller, audience) = dashboard.caller(&reign, &headers, &peer)?;
    // Without authentication, all callers have one name.
    let counted = match dashboard.0.authenticates {
        true => Some(reign.streams.count(&caller.user).ok_or(Refusal::Full)?),
        false => None,
    };
    let snapshots = reign.feed.look(audience.clone());
    let snapshots = snapshots.ok_or(Refusal::Stopping)?;
    peer.standing.let_in().map_err(|_| Refusal::Full)?;
    stay.stay();
    let (send, stream) = mpsc::channel(1);
    let viewer = Viewer {
        authenticator: reign.authenticator.clone(),
        visible: reign.visible,
        tenure: reign.tenure.clone(),
        caller,
        snapshots,
        audience,
        send,
    };
    tokio::spawn(async move {
        // Without this limit, a certificate would count for as long as its connection lasts.
        let _ = tokio::time::timeout(LONGEST, viewer.run()).await;
        drop(counted);
    });
    let kind = [(CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::from_stream(ReceiverStream::new(stream))))
}

/// One stream.
struct Viewer {
    authenticator: Authenticator,
    visible: Visible,
    tenure: Tenure,
    caller: Caller,
    audience: Audience,
    snapshots: watch::Receiver<Option<Arc<Published>>>,
    send: mpsc::Sender<Result<Bytes, Infallible>>,
}

impl Viewer {
    /// Sends snapshots until the viewer leaves, the reign ends, or the caller may no longer see them.
    async fn run(mut self) {
        let mut has = None;
        loop {
            tokio::select! {
                // The reign is over. The page tries again by itself.
                changed = self.snapshots.changed() => if changed.is_err() {
                    return;
                },
                () = self.send.closed() => return,
                // Also when the next snapshot takes long.
                () = tokio::time::sleep(COMMENT_AFTER) => {
                    if self.say(Bytes::from_static(COMMENT).into()).await.is_none() {
                        return;
                    }
                    continue;
                }
            }
            // What a deposed leader knows may be wrong by now, and so may its users and tokens.
            if !self.tenure.holds() {
                return;
            }
            let Some(published) = self.snapshots.borrow_and_update().clone() else {
                continue;
            };
            if let Err(reason) = self.may_go_on() {
                // The viewer has left already, or is told.
                let over = event("over", &json!({ "reason": reason }));
                let _ = self.say(over.into()).await;
                return;
            }
            let event = published.event_after(has);
            has = Some(published.number());
            // A slow viewer keeps the page or the change, and not both.
            drop(published);
            if self.say(event).await.is_none() {
                return;
            }
        }
    }

    /// Sends an event, and waits for a slow viewer, who misses the snapshots of this time. `None`: the viewer has left,
    /// takes too long, or may not see the rest. It also takes too long if slow viewers keep too much (see [`feed`]).
    async fn say(&self, mut event: Event) -> Option<()> {
        let authenticates = self.authenticator.authenticates();
        let user = authenticates.then_some(&self.caller.user);
        let begun = tokio::time::Instant::now();
        let mut next = event.part(SLICE);
        while let Some(part) = next {
            let mut sent = pin!(self.send.send(Ok(part)));
            match tokio::time::timeout_at(begun + SLOW_AFTER, &mut sent).await {
                Ok(sent) => sent.ok()?,
                Err(_) if !event.may_last(user) => {
                    tracing::debug!(
                        "a slow viewer's stream ends: slow viewers keep too many snapshots"
                    );
                    return None;
                }
                Err(_) => {
                    let sent = tokio::time::timeout_at(begun + EVENT_WITHIN, sent);
                    sent.await.ok()?.ok()?;
                }
            }
            next = event.part(SLICE);
            // The rest may wait for long, in which a token may end.
            if next.is_some() && (!self.tenure.holds() || self.may_go_on().is_err()) {
                return None;
            }
        }
        Some(())
    }

    /// Whether the caller may still see what this stream shows.
    fn may_go_on(&self) -> Result<(), String> {
        let again = self.authenticator.again(&self.caller);
        let caller = again.map_err(|status| status.message().to_owned())?;
        match audience(self.visible, &caller) {
            Ok(now) if now == self.audience => Ok(()),
            _ => Err("the user's permissions have changed".to_owned()),
        }
    }
}
