//! The figures of a history, for people: how much was judged, and how the proof went on under its faults.
//!
//! Pure; no figure is a violation.

use std::time::Duration;

use super::history::History;

/// Grants and lists are counted for each part of this length.
const PART: Duration = Duration::from_secs(10);

/// The figures, in lines.
pub(super) fn summary(history: &History) -> String {
    let used = history.runs.iter().filter(|run| run.used.is_some()).count();
    let ended = history.runs.iter().filter(|run| run.failure.is_none());
    let kept = ended.filter(|run| run.over.is_none() && run.released.is_none());
    let unanswered = history.calls.iter().filter(|of| of.outcome.is_none());
    let queues = history.listings.iter().map(|of| &of.queue);
    let term = queues.clone().map(|of| of.term).max().unwrap_or(0);
    let longest = queues.clone().map(|of| of.value.len()).max().unwrap_or(0);
    let grants: Vec<Duration> = history.runs.iter().filter_map(|of| of.granted).collect();
    let lists: Vec<Duration> = queues.map(|of| of.span.end).collect();
    let begin = grants.iter().chain(&lists).min().copied();
    let begin = begin.unwrap_or_default();
    format!(
        "{} runs, {used} of them used a device, {} could not release it in time; {} grants of fake nodes; {} lists, up to {longest} requests waiting; \
         {} revocations; {} calls about names, {} of them without an answer; terms up to {term}\n\
         grants in each {PART:?}: {}\nlists in each {PART:?}: {}",
        history.runs.len(),
        kept.count(),
        history.served.len(),
        history.listings.len(),
        history.revocations.len(),
        history.calls.len(),
        unanswered.count(),
        parts(begin, &grants),
        parts(begin, &lists),
    )
}

/// How many times are in each part, from `begin` on.
fn parts(begin: Duration, times: &[Duration]) -> String {
    let mut counts: Vec<u32> = Vec::new();
    for time in times {
        let part = (time.saturating_sub(begin).as_millis() / PART.as_millis()) as usize;
        if counts.len() <= part {
            counts.resize(part + 1, 0);
        }
        counts[part] += 1;
    }
    let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
    counts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_parts() {
        let at = |seconds| Duration::from_secs(seconds);
        assert_eq!(parts(at(5), &[at(36), at(5), at(14), at(15)]), "2 1 0 1");
    }
}
