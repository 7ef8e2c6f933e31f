//! `causeway top`: a live view of the device manager's nodes, devices, leases and queue.
//!
//! - [`view`]: the state of the view, and how keys and snapshots change it; pure.
//! - [`draw`]: draws the view on a screen, or as text.
//! - [`keys`]: the keys.
//! - This file: the manager's `Watch` stream, the terminal, and the loop between them.
//!
//! The terminal is always restored at the end. If the manager cannot be reached at the start, the verb
//! fails. If the connection is lost later, the verb retries until it is back.

mod draw;
mod keys;
mod view;

use std::io::IsTerminal;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use causeway_proto::manager::{Snapshot, WatchRequest};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tonic::Streaming;

use self::view::{KeyAction, View};
use crate::connection::{Connection, block_on};
use crate::context::Context;
use crate::failure::{Failure, Outcome};

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print once and exit; --json implies this
    #[arg(long)]
    once: bool,
    /// Interval between updates, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

/// Time beyond the interval after which a silent manager counts as lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Pause before a lost manager is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time between two redraws.
const REDRAW: Duration = Duration::from_secs(1);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&interval) {
        Ok(interval)
    } else {
        Err("invalid interval; expected 100ms to 1h".to_owned())
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let interval = arguments.interval;
    if arguments.once || context.json() {
        let view = block_on(once(context, interval))?;
        return context.print(&draw::load(&view), |_| draw::text(&view));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new("there is no terminal to draw on")
            .cure("causeway top --once, or --json, prints what there is"));
    }
    block_on(live(context, interval))?;
    Ok(std::process::ExitCode::SUCCESS)
}

/// A stream of snapshots from the manager.
struct Watch {
    manager: Connection,
    stream: Streaming<Snapshot>,
    interval: Duration,
}

impl Watch {
    async fn open(context: &Context, interval: Duration) -> Result<Watch, Failure> {
        let manager = Connection::new(context).await?;
        let request = manager.request(WatchRequest {
            interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX),
        });
        let mut admin = manager.admin();
        let stream = manager.answer_to(admin.watch(request)).await?;
        Ok(Watch {
            manager,
            stream,
            interval,
        })
    }

    async fn next(&mut self) -> Result<Snapshot, Failure> {
        let next = tokio::time::timeout(self.interval + SILENCE, self.stream.message());
        match next.await {
            Ok(Ok(Some(snapshot))) => Ok(snapshot),
            Ok(Ok(None)) => Err(Failure::new("the device manager closed the stream")),
            Ok(Err(status)) => Err(self.manager.failure(&status)),
            Err(_) => Err(Failure::new(
                "the device manager sent nothing within the timeout",
            )),
        }
    }
}

/// Takes two snapshots, so that rates can be computed.
async fn once(context: &Context, interval: Duration) -> Result<View, Failure> {
    let begin = Instant::now();
    let mut watch = Watch::open(context, interval).await?;
    let mut view = View::new(watch.manager.address().to_owned());
    for _ in 0..2 {
        let snapshot = watch.next().await?;
        view.take(begin.elapsed(), snapshot);
    }
    Ok(view)
}

/// An event for the view.
enum News {
    Snapshot(Snapshot),
    Lost(String),
    Key(Event),
    /// The terminal cannot be read any more, or a signal arrived.
    Over,
}

async fn live(context: &Context, interval: Duration) -> Result<(), Failure> {
    // Before the terminal changes its mode, so that a refusal is printed normally.
    let watch = Watch::open(context, interval).await?;
    let view = View::new(watch.manager.address().to_owned());
    let (tell, news) = mpsc::unbounded_channel();
    // Never dropped: its destructor prints an error if the terminal is gone, and that would panic.
    let mut terminal = ManuallyDrop::new(ratatui::try_init().map_err(terminal_failed)?);
    read_keys(tell.clone());
    let shown = tokio::select! {
        shown = show(&mut terminal, view, news) => shown,
        () = watching(context, watch, &tell) => Ok(()),
        failed = signals(&tell) => failed,
    };
    let restored = terminal.show_cursor().and(ratatui::try_restore());
    shown.and(restored.map_err(terminal_failed))
}

fn terminal_failed(error: std::io::Error) -> Failure {
    Failure::new(format!("the terminal: {error}"))
}

/// Sends snapshots and losses of the manager to the view; never returns.
async fn watching(context: &Context, first: Watch, tell: &mpsc::UnboundedSender<News>) {
    let interval = first.interval;
    let mut next = Ok(first);
    loop {
        let failure = match next {
            Ok(mut watch) => loop {
                match watch.next().await {
                    Ok(snapshot) => drop(tell.send(News::Snapshot(snapshot))),
                    Err(failure) => break failure,
                }
            },
            Err(failure) => failure,
        };
        // The receiver runs in the same `select`, so it exists.
        let _ = tell.send(News::Lost(failure.to_string()));
        tokio::time::sleep(RETRY).await;
        next = Watch::open(context, interval).await;
    }
}

async fn signals(tell: &mpsc::UnboundedSender<News>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    let _ = tell.send(News::Over);
    std::future::pending().await
}

/// Reads keys on a thread, because reading blocks. The thread ends with the process.
fn read_keys(tell: mpsc::UnboundedSender<News>) {
    std::thread::spawn(move || {
        loop {
            let news = event::read().map_or(News::Over, News::Key);
            let is_over = matches!(news, News::Over);
            if tell.send(news).is_err() || is_over {
                return;
            }
        }
    });
}

async fn show(
    terminal: &mut DefaultTerminal,
    mut view: View,
    mut news: mpsc::UnboundedReceiver<News>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        terminal
            .draw(|frame| draw::draw(frame, &mut view, begin.elapsed()))
            .map_err(terminal_failed)?;
        // Without events the screen is redrawn, because it shows times.
        let Ok(first) = tokio::time::timeout(REDRAW, news.recv()).await else {
            continue;
        };
        let mut next = first;
        while let Some(news_of) = next {
            let is_over = match news_of {
                News::Snapshot(snapshot) => {
                    view.take(begin.elapsed(), snapshot);
                    false
                }
                News::Lost(reason) => {
                    view.lose(begin.elapsed(), reason);
                    false
                }
                News::Key(event) => {
                    keys::key_action(&event).is_some_and(|key_action| view.apply(key_action))
                }
                News::Over => view.apply(KeyAction::Quit),
            };
            if is_over {
                return Ok(());
            }
            next = news.try_recv().ok();
        }
    }
}
