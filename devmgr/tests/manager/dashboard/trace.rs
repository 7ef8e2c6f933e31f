//! The view of traces in a real browser, against the reader of `proto/trace`. Skipped where Chromium is missing.

use std::path::{Path, PathBuf};

use causeway_trace::read::{Contents, contents};
use causeway_trace::record::{Batch, Call, Ended, Enqueued, Moved, Record, TracePlace};
use causeway_trace::ring::{FileChange, Ring, Sizes};
use causeway_trace::timeline::{Process, Timeline};
use serde_json::{Value, json};

use super::super::process::{DASHBOARD, Manager};
use super::super::tool::Secured;
use super::browser::Browser;
use super::page::sign_in;

/// A name that would run a script if it became markup.
const EVIL: &str = "<script>window.evil=1</script><img src=x onerror=window.evil=1>";

/// The first moment of the traces: one whose nanoseconds a number of JavaScript cannot hold.
const ZERO: u64 = 1_790_000_000_000_000_001;

const LEFT: char = '\u{E012}';
const RIGHT: char = '\u{E014}';
const DOWN: char = '\u{E015}';
const HOME: char = '\u{E011}';

/// The trace of a program that enqueues so many kernels on two nodes, as the library would report it.
fn trace(kernels: u64) -> Vec<u8> {
    drawn(records(kernels), false)
}

/// The file of these records. It says so if it `is_open`, as that of a program that was killed.
fn drawn(records: Vec<Record>, is_open: bool) -> Vec<u8> {
    let process = Process {
        id: 4711,
        name: EVIL.to_owned(),
        salt: 0x0123_4567_89AB_CDEF,
    };
    let (mut timeline, mut steps) = (Timeline::new(process), Vec::new());
    let mut ring = Ring::new(Sizes::default(), 7, &mut steps);
    let (mut drawn, mut last) = (Vec::new(), ZERO);
    for record in records {
        if let Record::Ended(ended) = &record {
            last = ended.at;
        }
        timeline.take(record, &mut drawn);
        for slice in drawn.drain(..) {
            ring.add(&slice, timeline.tracks(), &mut steps);
        }
    }
    ring.missing().is_open = is_open;
    ring.state(timeline.tracks(), last, &mut steps);
    ring.finish(&mut steps);
    let mut file = Vec::new();
    for step in steps {
        match step {
            FileChange::Length(length) => file.resize(length as usize, 0),
            FileChange::Write { at, bytes } => {
                let end = at as usize + bytes.len();
                file.resize(file.len().max(end), 0);
                file[at as usize..end].copy_from_slice(&bytes);
            }
        }
    }
    file
}

fn records(kernels: u64) -> Vec<Record> {
    let thread = 4711;
    let name = |name: &str| name.to_owned();
    let mut records = vec![Record::Thread {
        thread,
        name: name("main"),
    }];
    for node in [1, 2] {
        records.push(Record::Node {
            node,
            name: format!("box{node}"),
        });
        records.push(Record::Queue {
            queue: node.into(),
            node,
            device: name("<b>device</b>"),
        });
        records.push(Record::Build {
            node,
            name: "clBuildProgram",
            span: [ZERO, ZERO + 500],
        });
    }
    // A kernel ends after the next one was enqueued, so that an arrow leads from it to that one.
    let mut ends = Vec::new();
    for event in 1..=kernels {
        let (begin, node) = (ZERO + (event - 1) * 10_000, 1 + (event % 2) as u32);
        records.push(Record::Enqueued(Enqueued {
            event,
            place: TracePlace::Queue(node.into()),
            name: if event == 3 {
                EVIL.into()
            } else {
                "step".into()
            },
            bytes: Some(event * 1024),
            waits: (event > 1).then(|| event - 1).into_iter().collect(),
            thread: Some(thread),
        }));
        records.push(Record::Wait {
            thread,
            span: [begin + 500, begin + 900],
        });
        records.push(Record::Call(Call {
            thread,
            name: "clEnqueueNDRangeKernel",
            span: [begin, begin + 2_000],
            status: if event == 2 { -5 } else { 0 },
        }));
        records.append(&mut ends);
        records.push(Record::Batch(Batch {
            node,
            first: event,
            last: event,
            bytes: 100,
            span: [begin + 2_000, begin + 2_100],
        }));
        ends.push(Record::Moved(Moved {
            node,
            event,
            is_out: true,
            bytes: 4096,
            span: [begin + 2_200, begin + 2_900],
        }));
        let end = begin + 12_345;
        ends.push(Record::Ended(Ended {
            event,
            status: 0,
            at: end + 500,
            times: Some([begin + 1_000, begin + 2_500, begin + 4_000, end, end + 1]),
        }));
        ends.push(Record::Applied {
            node,
            number: event,
            at: end + 600,
        });
    }
    records.append(&mut ends);
    records
}

/// The moment of [`failure`], inside of the first kernel.
const FAILED: u64 = ZERO + 8_000;

/// A command that fails in the queue of the first kernel, while that runs.
fn failure() -> [Record; 2] {
    let event = 1 << 20;
    let enqueued = Enqueued {
        event,
        place: TracePlace::Queue(2),
        name: "fails".into(),
        bytes: None,
        waits: Vec::new(),
        thread: None,
    };
    let ended = Ended {
        event,
        status: -5,
        at: FAILED,
        times: None,
    };
    [Record::Enqueued(enqueued), Record::Ended(ended)]
}

/// A browser at the view of traces, and the folder of the files.
struct View {
    browser: Browser,
    manager: Manager,
    folder: tempfile::TempDir,
}

impl View {
    async fn open() -> Option<View> {
        let browser = Browser::start().await?;
        let manager = Manager::configured(DASHBOARD);
        browser.size(1000, 900).await;
        browser
            .go(&format!("http://{}/#trace", manager.dashboard()))
            .await;
        browser
            .until("return document.querySelector('nav [aria-current]')?.hash == '#trace'")
            .await;
        Some(View {
            browser,
            manager,
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        file
    }

    /// Chooses a file, and waits until the page draws or refuses it.
    async fn shows(&self, file: &Path) {
        self.browser.choose("#trace-file", file).await;
        self.browser
            .until(
                "return !document.querySelector('#drawing').hidden || \
                 !document.querySelector('#trace-trouble').hidden",
            )
            .await;
    }

    /// Waits until the canvas has this number of slices.
    async fn draws(&self, slices: usize) {
        self.browser
            .until(&format!(
                "return document.querySelector('#timeline').dataset.slices == {slices} && \
                 document.querySelector('#trace-summary').textContent.includes('slices on')"
            ))
            .await;
    }

    async fn text(&self, id: &str) -> String {
        let script = format!("return document.querySelector('#{id}').innerText");
        self.browser.run(&script).await.as_str().unwrap().to_owned()
    }

    /// Chooses the next slice in a direction, in the timeline.
    async fn choose(&self, arrow: char) {
        self.press(&[]).await;
        self.browser.shift(arrow).await;
    }

    /// Presses keys in the timeline.
    async fn press(&self, keys: &[char]) {
        let script = "document.querySelector('#timeline').focus()";
        self.browser.run(script).await;
        if !keys.is_empty() {
            self.browser.keys(&keys.iter().collect::<String>()).await;
        }
    }
}

#[tokio::test]
async fn the_page_draws_each_slice_of_a_trace_and_needs_no_manager_for_it() {
    let Some(mut view) = View::open().await else {
        return;
    };
    let file = trace(300);
    let (count, arrows) = {
        let read = contents(&file);
        let arrows = read.events.iter().map(|event| event.arrow_ends.len());
        (read.slices().len(), arrows.sum::<usize>())
    };
    assert!(count > 1500 && arrows > 500, "{count} {arrows}");
    let path = view.write("<img src=x onerror=window.evil=1>.pftrace", &file);
    // The browser sends the file to nobody: there is nobody left.
    view.manager.kill();
    view.shows(&path).await;
    view.draws(count).await;
    let summary = view.text("trace-summary").await;
    let expected = format!("{count} slices on 12 tracks, {arrows} arrows, 3.002945 ms.");
    assert_eq!(summary, expected);
    assert_eq!(view.text("trace-trouble").await, "");
    let canvas = "#timeline";
    let drawn = format!("return Number(document.querySelector('{canvas}').dataset.arrows)");
    assert_eq!(view.browser.run(&drawn).await, arrows);
    zoom_and_pan(&view, count).await;
    names_and_times(&view).await;
    for width in [320, 1001, 1920] {
        view.browser.size(width, 900).await;
        let fits = format!(
            "return innerWidth == {width} && document.documentElement.scrollWidth <= {width}"
        );
        view.browser.until(&fits).await;
    }
    assert_eq!(view.browser.run("return window.evil").await, Value::Null);
    let requests =
        "return performance.getEntriesByType('resource').map((of) => new URL(of.name).pathname)";
    let requests = view.browser.run(requests).await;
    for path in requests.as_array().unwrap() {
        let known = ["/page.js", "/page.css", "/trace_file.js", "/trace_view.js"];
        let known = known
            .into_iter()
            .chain(["/session", "/events", "/icon.svg"]);
        assert!(known.into_iter().any(|of| path == of), "{path}");
    }
    let complaints = view.browser.complaints().await;
    let policy = complaints.iter().find(|line| line.contains("Policy"));
    assert_eq!(policy, None);
}

async fn zoom_and_pan(view: &View, count: usize) {
    let all = count as u64;
    view.press(&['+'; 6]).await;
    until_fewer(view, all).await;
    view.press(&[HOME]).await;
    view.draws(count).await;
    // By the mouse: the wheel zooms, and dragging moves.
    let place = "const box = document.querySelector('#timeline').getBoundingClientRect(); \
                 return [box.left + box.width * 0.6, box.top + box.height * 0.5]";
    let place = view.browser.run(place).await;
    let [x, y] = [0, 1].map(|at| place[at].as_f64().unwrap() as i64);
    view.browser.zoom((x, y), -600).await;
    until_fewer(view, all).await;
    view.press(&[HOME]).await;
    view.draws(count).await;
    view.browser.mouse(&[(x, y), (x + 300, y)], true).await;
    until_fewer(view, all).await;
    for button in ["zoom-all", "zoom-in"] {
        let click = format!("document.querySelector('#{button}').click()");
        view.browser.run(&click).await;
    }
    until_fewer(view, all).await;
    view.press(&[HOME]).await;
    view.draws(count).await;
}

async fn until_fewer(view: &View, all: u64) {
    let script = format!(
        "const drawn = Number(document.querySelector('#timeline').dataset.slices); \
         return drawn > 0 && drawn < {all}"
    );
    view.browser.until(&script).await;
}

/// By keyboard and by mouse, the page names a slice and its times.
async fn names_and_times(view: &View) {
    // The first slice of the first track, which is the thread's.
    view.choose(RIGHT).await;
    let tip = view.text("tip").await;
    let lines: Vec<&str> = tip.lines().collect();
    assert_eq!(
        lines,
        [
            "clEnqueueNDRangeKernel",
            "0 ns to 2 µs, 2 µs",
            "track: main 4711"
        ]
    );
    // The next call failed. The waits inside of calls are the row below.
    view.choose(RIGHT).await;
    assert!(view.text("chosen").await.contains("status: -5"));
    view.choose(DOWN).await;
    let wait = view.text("chosen").await;
    assert!(
        wait.starts_with("waits for the node; 10.5 µs to 10.9 µs, 400 ns"),
        "{wait}"
    );
    // Down to the kernel whose name is hostile.
    let script = format!(
        "const tip = document.querySelector('#tip'); return !tip.hidden && tip.firstChild.textContent == {}",
        Value::from(EVIL)
    );
    'found: for _ in 0..12 {
        view.choose(DOWN).await;
        // The slice about that time, and the one behind it.
        for arrow in [RIGHT, LEFT] {
            if view.browser.run(&script).await == true {
                break 'found;
            }
            view.choose(arrow).await;
        }
    }
    assert_eq!(
        view.browser.run(&script).await,
        true,
        "{}",
        view.text("tip").await
    );
    let chosen = view.text("tip").await;
    assert!(chosen.contains("µs"), "{chosen}");
    // Zoomed, it fills the middle of the view, where the mouse finds it.
    view.press(&['f']).await;
    let place = "const box = document.querySelector('#timeline').getBoundingClientRect(); \
                 return [box.left, box.top, box.width, box.height]";
    let place = view.browser.run(place).await;
    let [left, top, width, height] = [0, 1, 2, 3].map(|at| place[at].as_f64().unwrap());
    let x = left + 220.0 + (width - 220.0) / 2.0;
    let mut found = None;
    for y in (0..height as i64).step_by(9) {
        view.browser
            .mouse(&[(x as i64, top as i64 + y)], false)
            .await;
        if view.browser.run(&script).await == true {
            found = Some(y);
            break;
        }
    }
    let y = found.expect("the slice under the mouse");
    assert_eq!(view.text("tip").await, chosen);
    // What is there has the slice's colour, and beside the slice there is something else.
    let pixel = |x: f64| {
        format!(
            "const canvas = document.querySelector('#timeline'); const ratio = canvas.width / canvas.clientWidth; \
             return [...canvas.getContext('2d').getImageData({x} * ratio, {} * ratio, 1, 1).data].join()",
            y + 6
        )
    };
    let inside = view.browser.run(&pixel(x - left + 150.0)).await;
    let outside = view.browser.run(&pixel(222.0)).await;
    assert_ne!(inside, outside);
    // After Esc, the outline is gone from its upper edge, too.
    let edge = format!(
        "const canvas = document.querySelector('#timeline'); const ratio = canvas.width / canvas.clientWidth; \
         const pen = canvas.getContext('2d'); const seen = new Set(); \
         for (let y = 0; y < canvas.height; y += 1) seen.add([...pen.getImageData({} * ratio, y, 1, 1).data].join()); \
         const accent = getComputedStyle(canvas).getPropertyValue('--accent').trim().slice(1); \
         return seen.has([0, 2, 4].map((at) => parseInt(accent.slice(at, at + 2), 16)).join() + ',255')",
        x - left + 150.0
    );
    let away = (left as i64 + 20, top as i64 - 20);
    view.browser.mouse(&[away], false).await;
    view.browser.until(&edge).await;
    view.press(&['\u{E00C}']).await;
    assert_eq!(view.text("chosen").await, "");
    view.browser
        .until(&edge.replace("return seen", "return !seen"))
        .await;
    view.press(&[HOME]).await;
}

#[tokio::test]
async fn files_that_are_no_whole_trace_say_so() {
    let Some(view) = View::open().await else {
        return;
    };
    let file = trace(100);
    let half = &file[..file.len() / 2];
    let rest = contents(half).slices().len();
    view.shows(&view.write("half.pftrace", half)).await;
    view.draws(rest).await;
    let text = view.text("trace-trouble").await;
    let of = format!("of {}. What follows is missing.", half.len());
    assert!(
        text.starts_with("The file is truncated: it ends inside of the packet at byte ")
            && text.contains(&of),
        "{text}"
    );
    // Ones in the place of a packet in the middle.
    let mut damaged = file.clone();
    let at = file.len() / 2;
    damaged[at..at + 40].fill(0xFF);
    view.shows(&view.write("damaged.pftrace", &damaged)).await;
    view.draws(contents(&damaged).slices().len()).await;
    let text = view.text("trace-trouble").await;
    assert!(text.contains("The file is damaged"), "{text}");
    for (name, bytes, expected) in [
        (
            "empty.pftrace",
            &b""[..],
            "No slice of a trace is in this file.",
        ),
        ("text.txt", &b"hello, no trace"[..], "The file is "),
        (
            "chrome.json",
            &b"{\"traceEvents\":[]}"[..],
            "This file is text",
        ),
    ] {
        view.shows(&view.write(name, bytes)).await;
        let text = view.text("trace-trouble").await;
        assert!(text.contains(expected), "{name}: {text}");
        let hidden = "return document.querySelector('#drawing').hidden";
        assert_eq!(view.browser.run(hidden).await, true, "{name}");
    }
    // The whole file after all those, and then another one at the same path.
    view.shows(&view.write("whole.pftrace", &file)).await;
    view.draws(contents(&file).slices().len()).await;
    assert_eq!(view.text("trace-trouble").await, "");
    let killed = drawn(records(50), true);
    let path = view.write("whole.pftrace", &killed);
    view.shows(&path).await;
    view.draws(contents(&killed).slices().len()).await;
    let stated = "the trace was not closed: if the program was killed, its last 0.1 s are missing.";
    assert_eq!(view.text("trace-trouble").await, stated);
}

#[tokio::test]
async fn a_command_that_failed_hides_nothing_of_the_one_that_runs() {
    let Some(view) = View::open().await else {
        return;
    };
    let mut records = records(10);
    records.extend(failure());
    let file = drawn(records, false);
    view.shows(&view.write("failed.pftrace", &file)).await;
    view.draws(contents(&file).slices().len()).await;
    choose_the_failure(&view).await;
    // Zoomed, there are the failure and what runs at that moment.
    view.press(&['F']).await;
    let read = contents(&file);
    let there = read.slices().into_iter();
    let there = there.filter(|of| of.begin.at <= FAILED + 30 && of.end + 30 >= FAILED);
    let there = there.count();
    assert!(there >= 2, "{there}");
    view.draws(there).await;
    let place = "const box = document.querySelector('#timeline').getBoundingClientRect(); \
                 const tip = document.querySelector('#tip'); const row = Math.floor((tip.offsetTop - 16 - 24) / 18); \
                 return [box.left + 220 + (box.width - 220) / 2, box.top + 24 + row * 18 + 9]";
    let place = view.browser.run(place).await;
    let [x, y] = [0, 1].map(|at| place[at].as_f64().unwrap() as i64);
    for (x, name) in [(x, "fails"), (x - 150, "step"), (x + 150, "step")] {
        view.browser.mouse(&[(x, y)], false).await;
        let script =
            format!("return document.querySelector('#tip').firstChild.textContent == '{name}'");
        view.browser.until(&script).await;
    }
    // Beside the failure, the kernel is still there, though it began before.
    view.press(&[RIGHT; 4]).await;
    let slices = read.slices().into_iter();
    let run = slices.filter(|of| of.begin.at < FAILED && of.end > FAILED);
    view.draws(run.count()).await;
}

/// Chooses the slice `fails` by keyboard: row after row, and along each from its first slice.
async fn choose_the_failure(view: &View) {
    let is_it =
        "return document.querySelector('#tip').firstChild?.textContent == 'fails'".to_owned();
    view.choose(RIGHT).await;
    for _ in 0..40 {
        for _ in 0..2 {
            if view.browser.run(&is_it).await == true {
                return;
            }
            view.choose(RIGHT).await;
        }
        for _ in 0..2 {
            view.choose(LEFT).await;
        }
        view.choose(DOWN).await;
    }
    panic!("no slice has this name: {}", view.text("tip").await);
}

#[tokio::test]
async fn a_moment_that_is_years_away_leaves_the_page_alive() {
    let Some(view) = View::open().await else {
        return;
    };
    let mut records = records(10);
    // What a damaged file may say: a slice at the beginning of all time.
    records.push(Record::Wait {
        thread: 4711,
        span: [1, 2],
    });
    let file = drawn(records, false);
    let count = contents(&file).slices().len();
    view.shows(&view.write("years.pftrace", &file)).await;
    view.draws(count).await;
    for arrow in [RIGHT, DOWN, DOWN, DOWN] {
        view.choose(arrow).await;
        view.press(&['f']).await;
        view.press(&['+'; 20]).await;
        assert_eq!(view.browser.run("return 1").await, 1);
    }
    view.press(&[HOME]).await;
    view.draws(count).await;
}

#[tokio::test]
async fn a_file_that_another_one_replaces_says_nothing_any_more() {
    let Some(view) = View::open().await else {
        return;
    };
    let [first, second] = [300, 5].map(|kernels| {
        let file = trace(kernels);
        file.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    });
    // The clock makes the page stop to read after each few packets.
    let script = format!(
        "const summary = document.querySelector('#trace-summary'); const texts = [];
         new MutationObserver((list) => list.forEach((of) => of.addedNodes.forEach((node) => texts.push(node.data))))
             .observe(summary, {{ childList: true }});
         const now = performance.now.bind(performance); let more = 0;
         performance.now = () => now() + (more += 1000);
         const input = document.querySelector('#trace-file');
         for (const [name, hex] of [['first', '{first}'], ['second', '{second}']]) {{
             const bytes = new Uint8Array(hex.match(/../g).map((of) => parseInt(of, 16)));
             const files = new DataTransfer();
             files.items.add(new File([bytes], name));
             input.files = files.files;
             input.dispatchEvent(new Event('change'));
         }}
         const tab = () => document.querySelector('nav [aria-current] .detail')?.textContent;
         // Time for a late text of the first, behind the end of the second.
         const look = (done) => setTimeout(() => tab() === 'second' ? setTimeout(() => done(texts), 300) : look(done), 50);
         return new Promise(look);"
    );
    let texts = view.browser.run(&script).await;
    let texts: Vec<_> = texts.as_array().unwrap().iter().collect();
    assert_eq!(&texts[..2], ["Reading first", "Reading second"]);
    let late = texts[2..]
        .iter()
        .find(|text| text.as_str().is_some_and(|text| text.contains("first")));
    assert_eq!(late, None, "{texts:?}");
    let tab = "return document.querySelector('nav [aria-current] .detail').textContent";
    assert_eq!(view.browser.run(tab).await, "second");
}

#[tokio::test]
async fn a_drawn_trace_outlives_the_end_of_the_sign_in() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut secured = Secured::configured(DASHBOARD);
    sign_in(&browser, &secured, "admin").await;
    browser.run("location.hash = 'trace'").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.pftrace");
    std::fs::write(&path, trace(10)).unwrap();
    browser.choose("#trace-file", &path).await;
    let drawn = "return Number(document.querySelector('#timeline').dataset.slices) > 0";
    browser.until(drawn).await;
    // The skip link keeps the view, too.
    let skip = "document.querySelector('.skip').click(); return [location.hash, document.activeElement.id]";
    assert_eq!(browser.run(skip).await, json!(["#trace", "content"]));
    // The cookie ends with the process.
    secured.manager.kill();
    secured.manager.start_again();
    browser
        .until("return document.querySelector('#trouble a')?.pathname == '/sign-in'")
        .await;
    // As many attempts as would have led away.
    let attempts = "performance.getEntriesByType('resource').filter((of) => of.name.endsWith('/session')).length";
    let before = browser.run(&format!("return {attempts}")).await;
    browser
        .until(&format!("return {attempts} >= {before} + 2"))
        .await;
    assert_eq!(browser.run(drawn).await, true);
    browser.run("location.hash = 'leases'").await;
    browser
        .until("return location.pathname == '/sign-in'")
        .await;
}

#[tokio::test]
#[ignore = "measures"]
async fn a_trace_of_the_largest_size_is_drawn() {
    let Some(view) = View::open().await else {
        return;
    };
    let file = trace(160_000);
    let path = view.write("large.pftrace", &file);
    let before = view.browser.busy().await;
    let begin = std::time::Instant::now();
    view.shows(&path).await;
    view.draws(contents(&file).slices().len()).await;
    let (took, busy) = (begin.elapsed(), view.browser.busy().await - before);
    let summary = view.text("trace-summary").await;
    println!(
        "{} MiB, {summary} Drawn after {took:?}, {busy:.1} s of the page's thread",
        file.len() >> 20
    );
    let frame = "return new Promise((done) => { const from = performance.now(); traceView.repaint(); \
                 requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - from))); })";
    println!(
        "one frame takes {} ms at most",
        view.browser.run(frame).await
    );
}

/// What is compared of a file: each slice, with its further values if they are wanted. A name that a damaged packet did
/// not bring may be known later, so values of damaged files differ.
fn slices_of(read: &Contents, has_values: bool) -> Vec<Value> {
    let slices = read.slices();
    let first = slices.iter().map(|of| of.begin.at).min().unwrap_or(0);
    let since = |moment: u64| i128::from(moment) - i128::from(first);
    let slices = slices.iter().map(|of| {
        let event = of.begin;
        let values = event.values.iter().filter(|_| has_values);
        let values = values.map(|(name, value)| match &**name {
            // Moments of the page count from the first one.
            "queued" | "submitted" | "completed" => {
                format!("{name}={}", since(value.parse().unwrap()))
            }
            _ => format!("{name}={value}"),
        });
        json!([
            since(event.at) as f64,
            since(of.end) as f64,
            of.depth,
            event.name,
            event.category,
            values.collect::<Vec<_>>(),
        ])
    });
    let mut slices: Vec<Value> = slices.collect();
    slices.sort_by_key(Value::to_string);
    slices
}

/// The same in the page.
const READ: &str = "return (async (file, hasValues) => {
    const trace = await traceFile.read(new Uint8Array(file.match(/../g).map((of) => parseInt(of, 16))));
    const slices = [];
    trace.begin.forEach((begin, slice) => {
        if (Number.isNaN(trace.end[slice])) return;
        const values = hasValues ? trace.values(slice) : [];
        const texts = values.map((of) => `${of.name}=${of.moment ?? of.text}`);
        slices.push([begin, trace.end[slice], trace.depth[slice], trace.name[slice], trace.category[slice], texts]);
    });
    return [trace.problems.length, slices];
})";

#[tokio::test]
async fn the_page_reads_damaged_files_as_the_reader_does() {
    let Some(view) = View::open().await else {
        return;
    };
    let whole = trace(6);
    // Xorshift, so that each run damages the same.
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut exact = 0;
    for round in 0..150 {
        let mut file = whole.clone();
        match round {
            0 => {}
            round if round % 5 == 1 => file.truncate(random(whole.len())),
            _ => {
                for _ in 0..1 + random(3) {
                    // Behind the statement, which is mostly padding.
                    let at = 1024 + random(whole.len() - 1024);
                    file[at] ^= 1 << random(8);
                }
            }
        }
        let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
        let read = contents(&file);
        let (is_whole, hex) = (round == 0, format!("{hex}0a"));
        let answer = view
            .browser
            .run(&format!("{READ}('{hex}', {is_whole})"))
            .await;
        let mut slices = answer[1].as_array().unwrap().clone();
        for slice in &mut slices {
            // JavaScript has one kind of numbers.
            for at in [0, 1] {
                slice[at] = json!(slice[at].as_f64());
            }
        }
        slices.sort_by_key(Value::to_string);
        let expected = slices_of(&read, is_whole);
        assert_eq!(slices.len(), expected.len(), "round {round}");
        let moments = read.events.iter().map(|event| event.at);
        let (first, last) = (
            moments.clone().min().unwrap_or(0),
            moments.max().unwrap_or(0),
        );
        // A damaged moment may be years away, in which nanoseconds have no place.
        if last - first < 1 << 50 {
            let different = slices.iter().zip(&expected).find(|(a, b)| a != b);
            assert_eq!(different, None, "round {round}");
            exact += 1;
        }
    }
    assert!(exact > 100, "{exact}");
}
