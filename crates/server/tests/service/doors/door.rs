//! The doors, and how each of them is asked and answers.

use http::Method;
use serde_json::{Value, json};

use super::house::{House, headers};
use super::row::{Caller, Row};
use crate::grpc::client::{OK, Request};
use crate::support::Answer;

/// A way in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Door {
    Check,
    Batch,
    Resp,
    AuthByRule,
    AuthByMatch,
    Gateway,
    Grpc,
}

impl Door {
    pub(super) const ALL: [Self; 7] = [
        Self::Check,
        Self::Batch,
        Self::Resp,
        Self::AuthByRule,
        Self::AuthByMatch,
        Self::Gateway,
        Self::Grpc,
    ];
    /// Those that see a whole request and find its rule.
    pub(super) const PROXIED: [Self; 2] = [Self::AuthByMatch, Self::Gateway];
    /// Those that see a whole request.
    pub(super) const REQUESTS: [Self; 3] = [Self::AuthByRule, Self::AuthByMatch, Self::Gateway];
    /// Those that are told the rule and the identity.
    pub(super) const ASKED: [Self; 3] = [Self::Check, Self::Batch, Self::Resp];
    /// All that see no descriptors.
    pub(super) const NOT_GRPC: [Self; 6] =
        [Self::Check, Self::Batch, Self::Resp, Self::AuthByRule, Self::AuthByMatch, Self::Gateway];
    /// Those that neither see a request to its end nor can be told of it.
    pub(super) const NOT_HOLDING: [Self; 5] =
        [Self::Check, Self::Batch, Self::Resp, Self::AuthByRule, Self::AuthByMatch];
    /// Those whose requests fall under no rule but the one that is named or matched.
    pub(super) const NAMED: [Self; 5] = [Self::Check, Self::Batch, Self::Resp, Self::AuthByRule, Self::Grpc];
    pub(super) const GRPC: [Self; 1] = [Self::Grpc];

    /// What makes this door's requests fall under a rule.
    pub(super) const fn matching(self, caller: Caller) -> &'static str {
        match (self, caller) {
            (Self::Grpc, Caller::Acme) => r#"match = { domain = "edge", entries = ["tenant"] }"#,
            (Self::Grpc, _) => r#"match = { domain = "edge", entries = ["who"] }"#,
            _ => r#"match = { path = "/x" }"#,
        }
    }

    /// Whom this door has pay for a caller that no key list says otherwise of.
    pub(super) fn payer(self, caller: Caller) -> String {
        match (caller, self) {
            (Caller::Acme, _) => "tenant:acme",
            (_, Self::Grpc) => "edge|who=ann",
            _ => "ip:203.0.113.7",
        }
        .to_owned()
    }

    /// The words by which this door says so.
    pub(super) fn words_for(self, told: &str) -> String {
        let words: Vec<&str> = told.split(' ').collect();
        match (self, words.as_slice()) {
            // Only callers of the API learn what a rule in shadow mode would have decided.
            (Self::Check | Self::Batch | Self::Resp, ["watch", "ok" | "open", ..]) => "watch ok".to_owned(),
            (Self::Check | Self::Batch | Self::Resp, ["watch", "no", _, limit]) => {
                format!("watch no {limit}")
            }
            (Self::Grpc, ["watch", "open"]) => "open".to_owned(),
            (Self::Grpc, ["watch", _, left, limit]) => format!("ok {left} {limit}"),
            (_, ["watch", ..]) => "free".to_owned(),
            // The reply names the limit that denies, and no other.
            (Self::Resp, ["ok", left, _]) => format!("ok {left} "),
            (Self::Grpc, ["never" | "banned"]) => "over".to_owned(),
            _ => told.to_owned(),
        }
    }

    /// Asks as the row says, and tells the answer in the row's words.
    pub(super) async fn ask(self, house: &House, row: &Row) -> String {
        match self {
            Self::Check => of_json(&house.spile.check(self.question(row)).await),
            Self::Batch => {
                let answer = house.spile.batch(json!([self.question(row)])).await;
                let only = answer.json().get(0).map_or_else(|| answer.text.clone(), Value::to_string);
                of_json(&Answer { text: only, ..answer })
            }
            Self::Resp => self.ask_resp(house, row).await,
            Self::AuthByRule => of_headers(&self.ask_auth(house, row, "/v1/auth/x").await),
            Self::AuthByMatch => of_headers(&self.ask_auth(house, row, "/v1/auth").await),
            Self::Gateway => {
                let mut fields = headers(row.caller);
                fields.extend(row.headers);
                let to = house.spile.gateway.expect("the listener is on");
                let method = Method::from_bytes(row.method.as_bytes()).expect("a method");
                of_headers(&house.spile.send_to(to, method, row.path, &fields, "").await)
            }
            Self::Grpc => self.ask_grpc(house, row).await,
        }
    }

    fn question(self, row: &Row) -> Value {
        let mut question = json!({"ruleId": "x", "identity": self.payer(row.caller)});
        if let Some(cost) = row.cost {
            question["cost"] = serde_json::from_str(cost).expect("a number");
        }
        question
    }

    async fn ask_auth(self, house: &House, row: &Row, path: &str) -> Answer {
        let mut fields = headers(row.caller);
        fields.extend(row.headers.iter().map(|&(name, value)| {
            // The proxy tells of the host by a header of its own.
            (if name == "host" { "x-original-host" } else { name }, value)
        }));
        fields.extend([("x-original-method", row.method), ("x-original-uri", row.path)]);
        house.spile.get(path, &fields).await
    }

    async fn ask_resp(self, house: &House, row: &Row) -> String {
        let payer = self.payer(row.caller);
        let mut words = vec!["SPILE.CHECK", "x", &payer];
        words.extend(row.cost);
        let reply = house.resp().await.ask(&words).await;
        let Some(items) = reply.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            return of_words(&reply);
        };
        let items: Vec<&str> = items.split(", ").collect();
        let value = |name: &str| {
            let at = items.iter().position(|item| *item == name).expect("a member of the reply");
            items[at + 1]
        };
        if value("reason") == "unlimited" {
            assert_eq!([value("limit"), value("remaining"), value("at")], ["nil"; 3], "{reply}");
            // The members of `shadow` are the last ones.
            let last =
                |name: &str| items.iter().rposition(|item| item.ends_with(name)).map(|at| items[at + 1]);
            let Some(_) = last("ruleId") else { return "free".to_owned() };
            let limit = last("limitedBy").filter(|limit| *limit != "nil");
            return limit.map_or_else(|| "watch ok".to_owned(), |limit| format!("watch no {limit}"));
        }
        of_decision(value("allowed") == "1", value("reason"), || {
            let name = value("limitedBy");
            // The reply has no list of limits: how much is left tells enough.
            let name = if name == "nil" { "" } else { name };
            (value("remaining").to_owned(), name.to_owned())
        })
    }

    async fn ask_grpc(self, house: &House, row: &Row) -> String {
        let entries: &[(&str, &str)] =
            if row.caller == Caller::Acme { &[("tenant", "acme")] } else { &[("who", "ann")] };
        let response = house.grpc().await.ask(Request::new("edge", &[entries])).await;
        let (status, degraded) = (&response.statuses[0], response.header("x-ratelimit-degraded").is_some());
        let limit = status.current_limit.as_ref().map(|limit| unshadowed(&limit.name).to_owned());
        let remaining = status.limit_remaining;
        match (response.overall_code == OK, limit) {
            (true, None) => "free".to_owned(),
            (true, Some(limit)) if degraded && remaining == capacity(&limit) => "open".to_owned(),
            (true, Some(limit)) => format!("ok {remaining} {limit}"),
            (false, Some(_)) if degraded && response.header("retry-after") == Some("1") => {
                "closed".to_owned()
            }
            (false, Some(limit)) if response.header("retry-after").is_some() => format!("no {limit}"),
            (false, _) => "over".to_owned(),
        }
    }
}

/// What a decision of the API says.
fn of_json(answer: &Answer) -> String {
    let json = answer.json();
    if json.get("allowed").is_none() {
        return of_words(json["detail"].as_str().unwrap_or_default());
    }
    let limits = json["limits"].as_array().expect("a decision has limits");
    if json["reason"] == "unlimited" {
        assert!(limits.is_empty() && answer.header("x-ratelimit-limit").is_none(), "{}", answer.text);
        assert!(
            json["limit"].is_null() && json["remaining"].is_null() && json["at"].is_null(),
            "{}",
            answer.text
        );
        let shadow = &json["shadow"];
        return match (shadow["allowed"].as_bool(), shadow["limitedBy"].as_str()) {
            (None, _) => "free".to_owned(),
            (Some(true), _) => "watch ok".to_owned(),
            (Some(false), limit) => format!("watch no {}", limit.expect("a limit")),
        };
    }
    // Each limit of the table has a different capacity.
    let binding = limits.iter().find(|limit| limit["limit"] == json["limit"]);
    let binding = binding.expect("the limit that binds is one of the chain");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of_decision(json["allowed"] == true, json["reason"].as_str().unwrap_or_default(), || {
        let name =
            if json["limitedBy"].is_null() { text(&binding["name"]) } else { text(&json["limitedBy"]) };
        (json["remaining"].to_string(), name)
    })
}

fn of_decision(allowed: bool, reason: &str, limit: impl Fn() -> (String, String)) -> String {
    let (remaining, name) = limit();
    match (allowed, reason) {
        (_, "fail_open") => "open".to_owned(),
        (_, "fail_closed") => "closed".to_owned(),
        (true, _) => format!("ok {remaining} {name}"),
        (false, _) => format!("no {name}"),
    }
}

/// What status and header fields say.
fn of_headers(answer: &Answer) -> String {
    let number = |name: &str| answer.header(name).and_then(|text| text.parse::<u32>().ok());
    let degraded = answer.header("x-ratelimit-degraded").is_some();
    // Each limit of the table has a capacity of its own.
    let limit = number("x-ratelimit-limit").and_then(|limit| LIMITS.iter().find(|(_, held)| *held == limit));
    match (answer.status.as_u16(), limit, number("x-ratelimit-remaining")) {
        (200, Some((_, held)), Some(remaining)) if degraded && remaining == *held => "open".to_owned(),
        (200, Some((name, _)), Some(remaining)) => format!("ok {remaining} {name}"),
        (200, ..) => "free".to_owned(),
        (429, Some((name, _)), _) => {
            let violated = &answer.json()["violated-policies"];
            assert!(
                violated.as_array().is_some_and(|list| list.contains(&json!(name))),
                "{name} in {violated}"
            );
            format!("no {name}")
        }
        (503, ..) => "closed".to_owned(),
        (401, ..) => "401".to_owned(),
        (403, ..) if answer.text.contains("is banned") || answer.text.contains("denies every request") => {
            "banned".to_owned()
        }
        (403, ..) => "never".to_owned(),
        (500, ..) if answer.text.contains("needs a permit") => "permit".to_owned(),
        (status, ..) => format!("{status} {}", answer.text),
    }
}

/// The limit as the configuration names it, whether its rule is in shadow mode or not.
fn unshadowed(name: &str) -> &str {
    name.strip_prefix("shadow:").unwrap_or(name)
}

/// What is wrong with a question.
fn of_words(words: &str) -> String {
    let table = [
        ("can never pass", "never"),
        ("only for tenants", "401"),
        ("denies every request", "banned"),
        ("it takes a permit", "permit"),
    ];
    let known = table.iter().find(|(part, _)| words.contains(part));
    known.map_or_else(|| words.to_owned(), |(_, told)| (*told).to_owned())
}

/// What each limit of the table holds.
const LIMITS: [(&str, u32); 10] = [
    ("gold/burst", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("bill/burst", 6),
    ("bill/year", 50),
    ("gold/day", 9),
    ("free", 10),
    ("pro", 100),
    ("words", 200),
];

/// What a limit holds; a decision without the store shows full buckets.
fn capacity(limit: &str) -> u32 {
    LIMITS.iter().find(|(name, _)| *name == limit).map_or(u32::MAX, |(_, held)| *held)
}
