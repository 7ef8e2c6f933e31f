//! Draws the live view on a screen of any size.
//!
//! Invariant: drawing changes nothing of the view but how far a pane is scrolled. Names reach the terminal as printable
//! characters only.

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_devmgr::rates::Rate;
use causeway_proto::manager::{DeviceInfo, LeaseInfo, NodeInfo, WaitingRequest};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};

use super::view::{Link, Pane, View, heights};
use crate::json::{self, Lease, LeaseLoad, Load, NodeLoad};
use crate::text::{self, NodeNames, bytes, count, duration, printable};

/// Lines of a pane's title and header.
const FRAME: u16 = 2;

/// A list: its title, its columns with their headings, its rows.
struct Columns<const N: usize> {
    title: String,
    headings: [&'static str; N],
    widths: [Constraint; N],
    rows: Vec<[String; N]>,
}

/// The view as text.
pub(super) fn text(view: &View) -> String {
    let lists = [
        nodes(view).text(),
        devices(view).text(),
        leases(view).text(),
        queue(view).text(),
    ];
    format!("{}\n\n{}", headline(view), lists.join("\n"))
}

/// The view for `--json`.
pub(super) fn load(view: &View) -> Load {
    let node = |node: &NodeInfo| {
        let rate = view.rate(&node.node_uuid);
        NodeLoad {
            node: node.clone().into(),
            bytes_per_second: rate.map(|of| of.bytes_per_second),
            commands_per_second: rate.map(|of| of.commands_per_second),
            busy: node
                .devices
                .iter()
                .map(|of| view.device_rate(node, of).map(|of| of.busy))
                .collect(),
        }
    };
    let lease = |lease: &LeaseInfo| {
        let rate = view.lease_rate(&lease.lease_id);
        LeaseLoad {
            lease: lease.clone().into(),
            bytes_per_second: rate.map(|of| of.bytes_per_second),
            commands_per_second: rate.map(|of| of.commands_per_second),
            busy: rate.map(|of| of.busy),
        }
    };
    let all = view.rate_in_all();
    let snapshot = &view.snapshot;
    Load {
        manager: view.manager.clone(),
        bytes_per_second: all.bytes_per_second,
        commands_per_second: all.commands_per_second,
        nodes: snapshot.nodes.iter().map(node).collect(),
        leases: snapshot.leases.iter().map(lease).collect(),
        waiting: snapshot.queue.as_ref().map_or(0, |of| of.waiting),
    }
}

/// Draws the whole screen. `now` counts from the start.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, now: Duration) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(view)).style(bold()), head);
    frame.render_widget(Paragraph::new(state(view, now)), foot);
    let rows = |pane| u16::try_from(view.rows(pane)).unwrap_or(u16::MAX);
    let wanted = Pane::ALL.map(|pane| rows(pane).saturating_add(FRAME));
    let mut area = body;
    for (pane, height) in Pane::ALL.into_iter().zip(heights(body.height, wanted)) {
        if height == 0 {
            continue;
        }
        area.height = height;
        match pane {
            Pane::Nodes => nodes(view).draw(frame, view, pane, area),
            Pane::Devices => devices(view).draw(frame, view, pane, area),
            Pane::Leases => leases(view).draw(frame, view, pane, area),
            Pane::Queue => queue(view).draw(frame, view, pane, area),
        }
        area.y += height;
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

impl<const N: usize> Columns<N> {
    fn text(self) -> String {
        let mut table = text::Table::new(self.headings);
        self.rows.into_iter().for_each(|row| table.row(row));
        format!("{}\n{table}", self.title)
    }

    fn draw(self, frame: &mut Frame<'_>, view: &mut View, pane: Pane, area: Rect) {
        let room = usize::from(area.height.saturating_sub(FRAME));
        let first = view.first_row(pane, room);
        let all = self.rows.len();
        let rows = self.rows.into_iter().skip(first).take(room);
        let rows = rows.map(|cells| Row::new(cells.map(|cell| printable(&cell))));
        let hidden = all.saturating_sub(room);
        let more = if hidden == 0 {
            String::new()
        } else {
            format!(" {}-{} of {all}", first + 1, (first + room).min(all))
        };
        let title = format!("{}{more} ", self.title);
        let style = if pane == view.focus {
            bold()
        } else {
            Style::new()
        };
        let block = Block::new()
            .borders(Borders::TOP)
            .title(Line::styled(title, style));
        let header = Row::new(self.headings).style(Style::new().add_modifier(Modifier::DIM));
        let table = Table::new(rows, self.widths).header(header).block(block);
        frame.render_widget(table, area);
    }
}

/// The summary in the first line.
fn headline(view: &View) -> String {
    let nodes = &view.snapshot.nodes;
    let connected = nodes.iter().filter(|node| node.connected).count();
    let (leased, units) = nodes
        .iter()
        .map(units)
        .fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
    let Rate {
        bytes_per_second,
        commands_per_second,
        ..
    } = view.rate_in_all();
    let waiting = view.snapshot.queue.as_ref().map_or(0, |of| of.waiting);
    format!(
        "causeway top {}  nodes {connected}/{}  units leased {leased}/{units}  leases {}  waiting {waiting}  {}/s  {} commands/s",
        printable(&view.manager),
        nodes.len(),
        view.snapshot.leases.len(),
        bytes(whole(bytes_per_second)),
        count(whole(commands_per_second)),
    )
}

fn state(view: &View, now: Duration) -> String {
    match &view.link {
        Link::Beginning => "asking the device manager…".to_owned(),
        Link::Heard => "q quits   Tab next list   ↑ ↓ PgUp PgDn Home End scroll".to_owned(),
        Link::Lost { since, reason } => format!(
            "LOST for {}: {} – this view is old; retrying",
            duration(text::milliseconds(now.saturating_sub(*since))),
            printable(reason)
        ),
    }
}

/// Rounds a rate, which is never negative.
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// A rate's bytes and commands as text; `-` if unknown.
fn rates(rate: Option<Rate>) -> [String; 2] {
    rate.map_or_else(
        || ["-", "-"].map(str::to_owned),
        |of| {
            [
                bytes(whole(of.bytes_per_second)) + "/s",
                count(whole(of.commands_per_second)),
            ]
        },
    )
}

/// Busy time as text; `-` if unknown.
fn busy(rate: Option<Rate>) -> String {
    rate.map_or_else(
        || "-".to_owned(),
        |of| format!("{} %", whole(of.busy * 100.0)),
    )
}

/// A card's utilisation, memory and temperature as text; `-` if unknown.
fn card(device: &DeviceInfo) -> [String; 3] {
    let card = device.r#use.and_then(|of| of.card).unwrap_or_default();
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let memory = match card.memory_used {
        Some(used) => format!("{} of {}", bytes(used), bytes(device.memory)),
        None => bytes(device.memory),
    };
    [
        known(card.utilization.map(|of| format!("{of} %"))),
        memory,
        known(card.temperature.map(|of| format!("{of} °C"))),
    ]
}

/// The sessions of a node, how many of them are in how many processes, by kind of domain, and how many are away.
fn sessions(node: &NodeInfo) -> String {
    let mut hosted: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for host in &node.hosts {
        let (sessions, hosts) = hosted.entry(&host.domain).or_default();
        *sessions = sessions.saturating_add(host.sessions);
        *hosts += 1;
    }
    let mut notes: Vec<String> = (hosted.iter())
        .map(|(domain, (sessions, hosts))| format!("{domain} {sessions} in {hosts}"))
        .collect();
    if node.away > 0 {
        notes.push(format!("{} away", node.away));
    }
    match notes.is_empty() {
        true => node.sessions.to_string(),
        false => format!("{} ({})", node.sessions, notes.join(", ")),
    }
}

/// Number of a node's leased units, and of all its units.
fn units(node: &NodeInfo) -> (u64, u64) {
    let of = node.devices.iter();
    of.fold((0, 0), |(leased, all), of| {
        (leased + u64::from(of.leased), all + u64::from(of.shares))
    })
}

fn nodes(view: &View) -> Columns<6> {
    let names = NodeNames::of_infos(&view.snapshot.nodes);
    let row = |node: &NodeInfo| {
        let (leased, all) = units(node);
        let [bytes, commands] = rates(view.rate(&node.node_uuid));
        let state = text::node_state(node.connected, node.draining, node.stopping);
        [
            names.label(&json::id(&node.node_uuid), &node.name),
            state.to_owned(),
            sessions(node),
            format!("{leased}/{all}"),
            bytes,
            commands,
        ]
    };
    Columns {
        title: "Nodes".to_owned(),
        headings: ["NODE", "STATE", "SESSIONS", "LEASED", "BYTES", "COMMANDS/S"],
        widths: [
            Constraint::Fill(1),
            Constraint::Length(14),
            Constraint::Length(18),
            Constraint::Length(9),
            Constraint::Length(14),
            Constraint::Length(10),
        ],
        rows: view.snapshot.nodes.iter().map(row).collect(),
    }
}

fn devices(view: &View) -> Columns<9> {
    let names = NodeNames::of_infos(&view.snapshot.nodes);
    let of_node = |node: &NodeInfo| {
        let name = names.label(&json::id(&node.node_uuid), &node.name);
        let row = |of: &DeviceInfo| {
            let [used, memory, temperature] = card(of);
            [
                name.clone(),
                format!("{}.{}", of.platform, of.device),
                of.r#type.clone(),
                format!("{}/{}", of.leased, of.shares),
                busy(view.device_rate(node, of)),
                used,
                temperature,
                memory,
                of.name.clone(),
            ]
        };
        node.devices.iter().map(row).collect::<Vec<_>>()
    };
    Columns {
        title: "Devices".to_owned(),
        headings: [
            "NODE", "DEVICE", "TYPE", "LEASED", "BUSY", "USED", "TEMP", "MEMORY", "NAME",
        ],
        widths: [
            Constraint::Fill(1),
            Constraint::Length(6),
            Constraint::Length(11),
            Constraint::Length(6),
            Constraint::Length(5),
            Constraint::Length(5),
            Constraint::Length(5),
            Constraint::Length(20),
            Constraint::Fill(2),
        ],
        rows: view.snapshot.nodes.iter().flat_map(of_node).collect(),
    }
}

fn leases(view: &View) -> Columns<10> {
    let names = NodeNames::of_infos(&view.snapshot.nodes);
    let row = |info: &LeaseInfo| {
        let lease = Lease::from(info.clone());
        let units = lease.nodes.iter().map(|of| of.units.len()).sum::<usize>();
        let nodes: Vec<String> = lease
            .nodes
            .iter()
            .map(|of| names.label(&of.node, &of.name))
            .collect();
        let program = lease.client.as_ref().map_or("", |of| of.program.as_str());
        let [bytes, commands] = rates(view.lease_rate(&info.lease_id));
        [
            lease.lease.chars().take(8).collect(),
            lease.user.clone(),
            lease.state.to_owned(),
            units.to_string(),
            nodes.join(" "),
            duration(lease.age_ms),
            bytes,
            commands,
            busy(view.lease_rate(&info.lease_id)),
            program.to_owned(),
        ]
    };
    Columns {
        title: "Leases".to_owned(),
        headings: [
            "LEASE",
            "USER",
            "STATE",
            "UNITS",
            "NODES",
            "AGE",
            "BYTES",
            "COMMANDS/S",
            "BUSY",
            "PROGRAM",
        ],
        widths: [
            Constraint::Length(8),
            Constraint::Fill(1),
            Constraint::Length(8),
            Constraint::Length(5),
            Constraint::Fill(1),
            Constraint::Length(11),
            Constraint::Length(13),
            Constraint::Length(10),
            Constraint::Length(5),
            Constraint::Fill(1),
        ],
        rows: view.snapshot.leases.iter().map(row).collect(),
    }
}

fn queue(view: &View) -> Columns<4> {
    let row = |of: &WaitingRequest| {
        [
            of.position.to_string(),
            of.user.clone(),
            duration(of.waiting_ms),
            of.request.clone(),
        ]
    };
    let requests = view.snapshot.queue.iter().flat_map(|of| &of.requests);
    Columns {
        title: "Queue".to_owned(),
        headings: ["PLACE", "USER", "WAITING", "REQUEST"],
        widths: [
            Constraint::Length(5),
            Constraint::Fill(1),
            Constraint::Length(11),
            Constraint::Fill(3),
        ],
        rows: requests.map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::{CardReading, DeviceUse};
    use causeway_proto::manager::{
        DeviceInfo, HostLoad, LeaseState, NodeShare, QueueList, Snapshot, Unit,
    };
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use crate::top::view::KeyAction;

    fn host(domain: &str, sessions: u32) -> HostLoad {
        HostLoad {
            domain: domain.to_owned(),
            sessions,
            ..HostLoad::default()
        }
    }

    fn node(number: u8, bytes: u64) -> NodeInfo {
        let device = |device| DeviceInfo {
            device,
            name: "H200".to_owned(),
            r#type: "GPU".to_owned(),
            memory: 141 << 30,
            shares: 2,
            leased: 1,
            r#use: (device == 0).then(|| DeviceUse {
                busy_ns: bytes / 2,
                card: Some(CardReading {
                    utilization: Some(37),
                    memory_used: Some(3 << 30),
                    temperature: Some(55),
                    ..CardReading::default()
                }),
                ..DeviceUse::default()
            }),
            ..DeviceInfo::default()
        };
        NodeInfo {
            node_uuid: vec![number; 16].into(),
            name: format!("node{number}"),
            connected: number != 3,
            draining: number == 2,
            devices: vec![device(0), device(1)],
            bytes,
            commands: bytes / 1000,
            sessions: 4,
            hosts: vec![host("user", 2), host("user", 1)],
            ..NodeInfo::default()
        }
    }

    fn snapshot(bytes: u64) -> Snapshot {
        let lease = LeaseInfo {
            lease_id: vec![0xab; 16].into(),
            user: "ann\u{1b}[31m".to_owned(),
            state: LeaseState::Active.into(),
            nodes: vec![NodeShare {
                name: "node1".to_owned(),
                units: vec![Unit::default(); 2],
                ..NodeShare::default()
            }],
            age_ms: 61_000,
            bytes,
            commands: 2 * bytes / 1000,
            busy_ns: bytes / 4,
            ..LeaseInfo::default()
        };
        let waiting = WaitingRequest {
            user: "bob".to_owned(),
            position: 1,
            request: "2, TYPE=GPU".to_owned(),
            ..WaitingRequest::default()
        };
        Snapshot {
            nodes: (1..=3).map(|number| node(number, bytes)).collect(),
            leases: vec![lease],
            queue: Some(QueueList {
                requests: vec![waiting],
                waiting: 1,
            }),
        }
    }

    fn view() -> View {
        let mut view = View::new("manager:7078".to_owned());
        view.take(Duration::from_secs(0), snapshot(0));
        view.take(Duration::from_secs(1), snapshot(1 << 30));
        view
    }

    fn screen(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let drawn = terminal.draw(|frame| draw(frame, view, Duration::from_secs(5)));
        let buffer = drawn.unwrap().buffer;
        let cells = buffer.content().chunks(usize::from(columns).max(1));
        let line =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect();
        cells.map(line).collect()
    }

    #[track_caller]
    fn assert_line(screen: &[String], words: &[&str]) {
        let has = |line: &String| words.iter().all(|word| line.contains(word));
        assert!(screen.iter().any(has), "{words:?} in {screen:#?}");
    }

    #[test]
    fn everything_is_on_a_screen_that_is_large_enough() {
        let screen = screen(&mut view(), 120, 30);
        let head = [
            "manager:7078",
            "nodes 2/3",
            "leased 6/12",
            "waiting 1",
            "2.0 GiB/s",
        ];
        assert_line(&screen[..1], &head);
        assert_line(
            &screen,
            &[
                "node1",
                "connected",
                "4 (user 3 in 2)",
                "2/4",
                "1.0 GiB/s",
                "1.1 M",
            ],
        );
        assert_line(&screen, &["node2", "draining"]);
        assert_line(&screen, &["node3", "lost", "-"]);
        assert_line(
            &screen,
            &["node1", "0.1", "GPU", "1/2", "-", "141.0 GiB", "H200"],
        );
        let used = ["0.0", "54 %", "37 %", "55 °C", "3.0 GiB of 141.0 GiB"];
        assert_line(&screen, &used);
        assert_line(
            &screen,
            &[
                "abababab",
                "active",
                "node1",
                "1 min 1 s",
                "1.0 GiB/s",
                "2.1 M",
                "27 %",
            ],
        );
        assert_line(&screen, &["bob", "2, TYPE=GPU"]);
        assert_line(&screen[29..], &["q quits"]);
        // Control characters in names do not reach the terminal.
        assert!(!screen.concat().contains('\u{1b}'));
    }

    #[test]
    fn small_screens_show_what_fits_and_scroll() {
        let mut view = view();
        for (columns, rows) in [(1, 1), (2, 3), (7, 5), (80, 4), (20, 40), (300, 2)] {
            assert_eq!(screen(&mut view, columns, rows).len(), usize::from(rows));
        }
        let small = screen(&mut view, 80, 5);
        assert_line(&small, &["Nodes", "1-1 of 3"]);
        view.apply(KeyAction::Last);
        let scrolled = screen(&mut view, 80, 5);
        assert_line(&scrolled, &["Nodes", "3-3 of 3"]);
        assert_line(&scrolled, &["node3"]);
    }

    #[test]
    fn a_lost_manager_is_said_and_the_last_things_stay() {
        let mut view = view();
        view.lose(Duration::from_secs(2), "gone".to_owned());
        let screen = screen(&mut view, 100, 30);
        assert_line(&screen[29..], &["LOST for 3 s", "gone"]);
        assert_line(&screen, &["node1", "connected"]);
    }

    #[test]
    fn as_text_it_has_the_same_rows() {
        let text = text(&view());
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_line(&lines, &["node1", "connected", "2/4", "1.0 GiB/s"]);
        assert_line(&lines, &["bob", "2, TYPE=GPU"]);
        assert!(!text.contains('\u{1b}'));
    }
}
