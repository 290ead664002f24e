//! One row: a configuration, a request, what is told, and what is left.

use super::door::Door;
use super::house::Store;

/// Plans and tenants that every row has. Time stands still, so that no bucket fills.
pub(super) const BASE: &str = r#"
[plans.three]
capacity = 3
refill = "1/h"
[plans.five]
capacity = 5
refill = "1/h"
[plans.gold]
limits = [{ name = "burst", capacity = 2, refill = "1/h" }, { name = "day", capacity = 9, refill = "1/day" }]
[plans.four]
quota = 4
per = "year"
zone = "Europe/Berlin"
[plans.bill]
limits = [{ name = "burst", capacity = 6, refill = "1/h" }, { name = "year", quota = 50, per = "year", anchor = "04-01" }]
[plans.busy]
limits = [{ name = "atonce", concurrency = 7, hold = "30s" }, { name = "rate", capacity = 8, refill = "1/h" }]
[[tenants]]
id = "acme"
plan = "five"
api_keys = ["sha256:e4f0e7ec3dd1b5edcbd2db0e3b27c7a0a47cc0a8f3d6e70e9f5d6b9e0b1c2d3e"]
"#;

/// Who sends the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Caller {
    /// The address 203.0.113.7.
    Stranger,
    /// That address with the API key of tenant `acme`.
    Acme,
    /// That address with an API key that no tenant has.
    WrongKey,
}

/// A configuration, a request, what is told, and what is left.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Above all tables.
    pub(super) top: &'static str,
    /// Rules and more. `MATCH` stands for what makes the door's requests fall under a rule.
    pub(super) config: &'static str,
    pub(super) caller: Caller,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) cost: Option<&'static str>,
    doors: &'static [Door],
    told: &'static str,
    left: &'static str,
    /// What happens while the store is down: `allow`, `deny` or `local`.
    down: &'static str,
}

/// A row whose rule is called `x`, asked by a stranger at every door, under a store that fails open.
pub(super) fn row(name: &'static str, config: &'static str) -> Row {
    Row {
        name,
        top: "",
        config,
        caller: Caller::Stranger,
        method: "GET",
        path: "/x",
        headers: &[],
        cost: None,
        doors: &Door::ALL,
        told: "",
        left: "",
        down: "allow",
    }
}

impl Row {
    pub(super) fn top(mut self, top: &'static str) -> Self {
        self.top = top;
        self
    }

    pub(super) fn by(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// A request that only doors see which carry whole requests.
    pub(super) fn request(mut self, method: &'static str, path: &'static str) -> Self {
        (self.method, self.path) = (method, path);
        self.at(&Door::PROXIED)
    }

    pub(super) fn with(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self.at(&Door::PROXIED)
    }

    /// A cost that the caller names, where it can.
    pub(super) fn costing(mut self, tokens: &'static str) -> Self {
        self.cost = Some(tokens);
        self.at(&Door::ASKED)
    }

    pub(super) fn at(mut self, doors: &'static [Door]) -> Self {
        self.doors = doors;
        self
    }

    /// What is told to one request after the other: `ok 2 three`, `no three`, `watch 0 three`, `free`, `401`, `never`,
    /// `banned`, `permit` if one would have to be held.
    pub(super) fn told(mut self, told: &'static str) -> Self {
        self.told = told;
        self
    }

    /// What is left then: `KEY three 0`, where `KEY` is whom the door has pay.
    pub(super) fn left(mut self, left: &'static str) -> Self {
        self.left = left;
        self
    }

    pub(super) fn down(mut self, policy: &'static str) -> Self {
        self.down = policy;
        self
    }

    pub(super) fn is_for(&self, door: Door) -> bool {
        self.doors.contains(&door)
    }

    /// What this door is to say, one request after the other.
    pub(super) fn told_at(&self, door: Door, store: &Store<'_>) -> Vec<String> {
        self.told.split(", ").map(|told| door.words_for(&self.by_store(told, store))).collect()
    }

    /// What is to be left in each bucket then.
    pub(super) fn left_at(&self, door: Door) -> Vec<String> {
        let lines = self.left.split(", ").filter(|line| !line.is_empty());
        lines.map(|line| line.replace("KEY", &door.payer(self.caller))).collect()
    }

    fn by_store(&self, told: &str, store: &Store<'_>) -> String {
        let words: Vec<&str> = told.split(' ').collect();
        let decided = ["ok", "no", "watch"].contains(&words[0]);
        if !matches!(store, Store::Down) || !decided {
            return told.to_owned();
        }
        match (self.down, words.as_slice()) {
            // No limit is to blame, and the rule blocks nothing.
            (_, ["watch", ..]) => "watch open".to_owned(),
            ("allow", _) => "open".to_owned(),
            ("deny", _) => "closed".to_owned(),
            _ => told.to_owned(),
        }
    }
}
