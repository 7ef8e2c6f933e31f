//! The report for the user: a line for each case, then the tables and the count.

use std::time::{Duration, Instant};

use crate::case::{Outcome, Verdict};

/// The report of the run so far.
pub(crate) struct Report {
    begin: Instant,
    all_notes: bool,
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<(String, String)>,
    notes: Vec<(String, String)>,
    ends: Vec<(String, String, Duration)>,
}

impl Report {
    /// Makes an empty report. With `all_notes`, notes are printed in full.
    pub(crate) fn new(all_notes: bool) -> Self {
        Self {
            begin: Instant::now(),
            all_notes,
            passed: 0,
            failed: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Announces a suite, whose cases follow.
    pub(crate) fn begin_suite(&self, name: &str) {
        println!("== {name}");
    }

    /// Adds a result and prints its line.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        let Outcome {
            name,
            verdict,
            took,
        } = outcome;
        let seconds = took.as_secs_f64();
        match verdict {
            Verdict::Passed => {
                println!("ok      {name} ({seconds:.1} s)");
                self.passed += 1;
            }
            Verdict::Noted(note) => {
                println!("ok      {name} ({seconds:.1} s, with a note)");
                self.passed += 1;
                self.notes.push((name, note));
            }
            Verdict::Partly(note, skipped) => {
                println!(
                    "ok      {name} ({seconds:.1} s, {} skipped within)",
                    skipped.len()
                );
                self.passed += 1;
                self.notes.push((name, note));
                self.skipped.extend(skipped);
            }
            Verdict::Ended { saw, took } => {
                println!("ok      {name} ({seconds:.1} s)");
                self.passed += 1;
                self.ends.push((name, saw, took));
            }
            Verdict::Failed(why) => {
                println!("FAILED  {name} ({seconds:.1} s)");
                print_indented(&why);
                self.failed.push(name);
            }
            Verdict::Skipped(reason) => {
                println!("skipped {name}: {reason}");
                self.skipped.push((name, reason));
            }
        }
    }

    /// Prints tables and count. Returns whether at least one case ran and none failed.
    pub(crate) fn finish(self) -> bool {
        if !self.notes.is_empty() {
            println!("\nNotes: {}", self.notes.len());
            for (name, note) in &self.notes {
                if self.all_notes {
                    println!("  {name}");
                    print_indented(note);
                } else {
                    println!("  {name}: {}", note.lines().next().unwrap_or_default());
                }
            }
        }
        self.print_ends();
        if !self.skipped.is_empty() {
            println!("\nSkipped, and why:");
            let width = self
                .skipped
                .iter()
                .map(|(name, _)| name.len())
                .max()
                .unwrap_or(0);
            for (name, reason) in &self.skipped {
                println!("  {name:<width$}  {reason}");
            }
        }
        if !self.failed.is_empty() {
            println!("\nFailed:");
            for name in &self.failed {
                println!("  {name}");
            }
        }
        println!("\n{:.0} s", self.begin.elapsed().as_secs_f64());
        let skipped = match self.skipped.len() {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        println!(
            "{} passed, {} failed{skipped}",
            self.passed,
            self.failed.len()
        );
        if self.passed + self.failed.len() + self.skipped.len() == 0 {
            eprintln!("conformance: no case has such a name");
            return false;
        }
        self.failed.is_empty()
    }

    fn print_ends(&self) {
        if self.ends.is_empty() {
            return;
        }
        println!("\nfault | what the program saw | seconds to the end");
        println!("---|---|---");
        for (name, saw, took) in &self.ends {
            println!("{name} | {saw} | {:.2}", took.as_secs_f64());
        }
    }
}

fn print_indented(text: &str) {
    for line in text.lines() {
        println!("        {line}");
    }
}
