//! Counts who holds what, by what the workers say, without asking Redis.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{BufRead, BufReader, PipeReader};

/// What was seen of one scenario.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) most: usize,
    pub(crate) acquired: u64,
    pub(crate) highest: usize,
    pub(crate) lost: u64,
    pub(crate) left: usize,
    pub(crate) breaches: Vec<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, most, acquired, highest, lost, left, breaches } = self;
        let breaches = if breaches.is_empty() { "none".to_owned() } else { breaches.join("; ") };
        write!(f, "| {name} | {acquired} | {highest} | {most} | {lost} | {left} | {breaches} |")
    }
}

/// The permits that are held, by key, each with the process that holds it.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    held: HashMap<String, HashMap<String, u32>>,
    key_of: HashMap<String, String>,
    ended: HashSet<String>,
    /// Permits whose holder said that it had lost them: they were void before that.
    lost_ids: HashSet<String>,
    /// More than the limit, and who was counted.
    excesses: Vec<(usize, Vec<String>, String)>,
    /// Processes that were suspended for longer than the hold time: what they hold is void.
    void: HashSet<u32>,
    pub(crate) acquired: u64,
    pub(crate) lost: u64,
    pub(crate) highest: usize,
    pub(crate) breaches: Vec<String>,
}

impl Judge {
    /// Reads what happens until no process can write any more. `told` is called with each acquisition.
    pub(crate) fn read(from: PipeReader, most: usize, told: impl Fn(u64)) -> Self {
        let mut judge = Self::default();
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["A", process, id, key] => {
                    judge.acquire(number(process), id, key, most);
                    told(judge.acquired);
                }
                ["R", _, id] => judge.end(id),
                ["L", _, id] => {
                    judge.lost += 1;
                    judge.lost_ids.insert((*id).to_owned());
                    judge.end(id);
                }
                // It was killed, or has been suspended for too long.
                ["K", process] => judge.forget(number(process)),
                // It goes on.
                ["C", process] => drop(judge.void.remove(&number(process))),
                _ => judge.breach(format!("an event that cannot be read: {line}")),
            }
        }
        judge.weigh_excesses();
        judge
    }

    /// An excess is none if as many of those that were counted had lost their permits.
    fn weigh_excesses(&mut self) {
        for (excess, ids, what) in std::mem::take(&mut self.excesses) {
            let void = ids.iter().filter(|id| self.lost_ids.contains(*id)).count();
            self.highest = self.highest.max(ids.len() - void);
            if void < excess {
                self.breach(what);
            }
        }
    }

    fn acquire(&mut self, process: u32, id: &str, key: &str, most: usize) {
        self.acquired += 1;
        if self.key_of.insert(id.to_owned(), key.to_owned()).is_some() {
            self.breach(format!("{id} was taken twice"));
        }
        if self.void.contains(&process) {
            return;
        }
        let held = self.held.entry(key.to_owned()).or_default();
        held.insert(id.to_owned(), process);
        let count = held.len();
        if count <= most {
            self.highest = self.highest.max(count);
        } else {
            let ids = held.keys().cloned().collect();
            let what = format!("{count} held of {key} after {} acquisitions", self.acquired);
            self.excesses.push((count - most, ids, what));
        }
    }

    /// Ends a permit. One that was forgotten before may be told once more.
    fn end(&mut self, id: &str) {
        if !self.ended.insert(id.to_owned()) {
            self.breach(format!("{id} was released twice"));
        }
        let Some(key) = self.key_of.get(id) else {
            return self.breach(format!("{id} was released and never taken"));
        };
        if let Some(held) = self.held.get_mut(key) {
            held.remove(id);
        }
    }

    fn forget(&mut self, process: u32) {
        self.void.insert(process);
        for held in self.held.values_mut() {
            held.retain(|_, holder| *holder != process);
        }
    }

    fn breach(&mut self, what: String) {
        if self.breaches.len() < 5 {
            self.breaches.push(what);
        }
    }
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_default()
}
