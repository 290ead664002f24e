//! Whom a route answers for and whom it asks.

use http::HeaderName;
use spile_gateway::{Balance, Upstream};
use spile_policy::HostPattern;

use crate::config::file::{Faults, Spot, TextOrTexts};

/// The upstreams, of which there is one at least.
pub(super) fn check(Spot { value, place }: Spot<TextOrTexts>, faults: &mut Faults) -> Option<Vec<String>> {
    let upstreams = match value {
        TextOrTexts::Text(one) => vec![Spot::new(one, place)],
        TextOrTexts::Texts(several) if several.is_empty() => {
            faults.add(&place, "there is no upstream", "one URL or more, as in `http://127.0.0.1:9000`");
            return None;
        }
        TextOrTexts::Texts(several) => several,
    };
    let mut good = Vec::with_capacity(upstreams.len());
    for Spot { value, place } in upstreams {
        match value.parse::<Upstream>() {
            Ok(_) => good.push(value),
            Err(why) => {
                faults.add(&place, why, "for instance `http://127.0.0.1:9000` or `unix:/run/app.sock`");
            }
        }
    }
    (!good.is_empty()).then_some(good)
}

pub(super) fn check_hosts(hosts: Option<Spot<Vec<Spot<String>>>>, faults: &mut Faults) -> Vec<String> {
    let hosts = hosts.map(|hosts| hosts.value).unwrap_or_default();
    for Spot { value, place } in &hosts {
        if value.parse::<HostPattern>().is_err() {
            let message = format!("`{value}` is no host");
            faults.add(place, message, "for instance `api.example.com` or `*.example.com`");
        }
    }
    hosts.into_iter().map(|host| host.value).collect()
}

pub(super) fn check_balance(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<Balance> {
    match value.as_str() {
        "round_robin" => Some(Balance::RoundRobin),
        "least_outstanding" => Some(Balance::LeastOutstanding),
        _ => {
            let message = format!("`{value}` is no way to balance");
            faults.add(place, message, "`round_robin` or `least_outstanding`");
            None
        }
    }
}

/// The protocols that connections may be upgraded to.
pub(super) fn check_upgrades(names: Option<Spot<Vec<Spot<String>>>>, faults: &mut Faults) -> Vec<String> {
    let Some(names) = names else { return vec!["websocket".to_owned()] };
    // Names and versions of protocols are tokens, as the names of header fields are.
    let is_token = |text: &str| HeaderName::from_bytes(text.as_bytes()).is_ok();
    for Spot { value, place } in &names.value {
        // A name, and a version that some have: `irc/6.9`.
        let (name, version) = value.split_once('/').unwrap_or((value, "1"));
        let speaks_http =
            ["h2", "h2c", "h3", "http", "https", "tls"].iter().any(|own| name.eq_ignore_ascii_case(own));
        if !is_token(name) || !is_token(version) || value.len() > 64 {
            let message = format!("`{value}` is no protocol");
            faults.add(place, message, "a name of at most 64 letters, digits and signs, as in `websocket`");
        } else if speaks_http {
            let message = format!("`{value}` would carry requests past all rules and limits");
            faults.add(place, message, "protocols that carry no HTTP, as in `websocket`");
        }
    }
    names.value.into_iter().map(|name| name.value).collect()
}
