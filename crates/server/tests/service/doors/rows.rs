//! The rows of the table.

use super::door::Door;
use super::row::Caller::{Acme, WrongKey};
use super::row::{Row, row};

pub(super) fn rows() -> Vec<Row> {
    [
        plans(),
        quotas(),
        concurrencies(),
        chains(),
        failures(),
        shadows(),
        tenants(),
        keys(),
        matching(),
        defaults(),
        descriptors(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn plans() -> Vec<Row> {
    vec![
        row("a plan is spent to its end", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]")
            .told("ok 2 three, ok 1 three, ok 0 three, no three, no three")
            .left("KEY three 0, KEY five 5"),
        row("a cost is spent at once", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\ncost = 2")
            .told("ok 3 five, ok 1 five, no five")
            .left("KEY five 1"),
        row("a cost may take all there is", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\ncost = 3")
            .told("ok 0 three, no three")
            .left("KEY three 0"),
        row("a plan may be a chain", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"gold\"]")
            .told("ok 1 gold/burst, ok 0 gold/burst, no gold/burst")
            .left("KEY gold 0"),
        row("a rule may have two plans", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\", \"gold\"]")
            .told("ok 1 gold/burst, ok 0 gold/burst, no gold/burst")
            .left("KEY three 1, KEY gold 0"),
        row(
            "a plan that is named twice is charged once",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\", \"three\"]",
        )
        .told("ok 2 three, ok 1 three, ok 0 three, no three")
        .left("KEY three 0"),
        row("a cost that its caller names", "[[rules]]\nid = \"x\"\nplans = [\"five\"]")
            .costing("4")
            .told("ok 1 five, no five")
            .left("KEY five 1"),
        row("a cost that its caller names, above the plan", "[[rules]]\nid = \"x\"\nplans = [\"five\"]")
            .costing("6")
            .told("never, never")
            .left("KEY five 5"),
        row("a cost of nothing only looks", "[[rules]]\nid = \"x\"\nplans = [\"five\"]")
            .costing("0")
            .told("ok 5 five, ok 5 five")
            .left("KEY five 5"),
        row(
            "a cost may be a part of a token",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\ncost = 1.75",
        )
        .told("ok 3 five, ok 1 five, no five")
        .left("KEY five 1"),
        row("a part of a token that its caller names", "[[rules]]\nid = \"x\"\nplans = [\"five\"]")
            .costing("0.5")
            .told("ok 4 five, ok 4 five, ok 3 five")
            .left("KEY five 3"),
        row(
            "an amount of money",
            "[[rules]]\nid = \"x\"\nplans = [\"purse\"]
             [plans.purse]\ncapacity = 2.5\nrefill = \"0.5/h\"\nunit = \"usd\"",
        )
        .costing("0.999999")
        .told("ok 1.500001 purse, ok 0.500002 purse, no purse")
        .left("KEY purse 0.500002"),
        row("nothing is limited by an unlimited rule", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"unlimited\"")
            .told("free, free, free, free")
            .left("KEY three 3, KEY free 10"),
        row("nothing passes a banned rule", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"banned\"")
            .told("banned, banned")
            .left("KEY three 3, KEY free 10"),
    ]
}

fn quotas() -> Vec<Row> {
    vec![
        row("a quota is spent to its end", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"four\"]")
            .told("ok 3 four, ok 2 four, ok 1 four, ok 0 four, no four, no four")
            .left("KEY four 0"),
        row(
            "a quota is spent to its end by one machine while the store is down",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"four\"]\ncost = 2\non_failure = \"local\"",
        )
        .down("local")
        .told("ok 2 four, ok 0 four, no four")
        .left("KEY four 0"),
        row("a quota covers no cost above it", "[[rules]]\nid = \"x\"\nplans = [\"four\"]")
            .costing("5")
            .told("never, never")
            .left("KEY four 4"),
        row(
            "a rate beside a quota takes nothing from it that it denies",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"bill\"]\ncost = 3",
        )
        .told("ok 3 bill/burst, ok 0 bill/burst, no bill/burst")
        .left("KEY bill 0"),
        row(
            "a quota beside a rate takes nothing from it that it denies",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"four\", \"five\"]",
        )
        .told("ok 3 four, ok 2 four, ok 1 four, ok 0 four, no four, no four")
        .left("KEY four 0, KEY five 1"),
    ]
}

fn concurrencies() -> Vec<Row> {
    vec![
        row(
            "nothing that could not be released is taken",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"busy\", \"five\"]",
        )
        .at(&Door::NOT_HOLDING)
        .told("permit, permit")
        .left("KEY busy 7, KEY five 5"),
        row(
            "nor by a rule that is charged along",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"busy\"]",
        )
        .at(&Door::NOT_HOLDING)
        .told("permit, permit")
        .left("KEY busy 7, KEY five 5"),
    ]
}

fn chains() -> Vec<Row> {
    vec![
        row(
            "a bucket of two rules is charged once, at the higher cost",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\ncost = 1\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"five\"]\ncost = 2",
        )
        .told("ok 3 five, ok 1 five, no five")
        .left("KEY five 1"),
        row(
            "the higher cost may be the rule's own",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\ncost = 4\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"five\"]",
        )
        .told("ok 1 five, no five")
        .left("KEY five 1"),
        row(
            "a chain of rules is all or nothing",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"three\"]\ncost = 2",
        )
        .told("ok 1 three, no three, no three")
        .left("KEY five 4, KEY three 1"),
        row(
            "a chain may go through a bucket that all share",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nalso = [\"all\"]
             [[rules]]\nid = \"all\"\nmatch = { path = \"/all\" }\nkey = [\"literal:all\"]\nplans = [\"three\"]",
        )
        .told("ok 2 three, ok 1 three, ok 0 three, no three")
        .left("KEY five 2, static:all three 0"),
        row(
            "an allowed chain reports the limit that will deny first, which may have more tokens left",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"words\"]\ncost = 90
             [plans.words]\ncapacity = 200\nrefill = \"1/h\"",
        )
        .told("ok 110 words, ok 20 words, no words")
        .left("KEY five 3, KEY words 20"),
        row(
            "three rules meet in two buckets",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\", \"three\"]\nalso = [\"y\", \"z\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"five\"]\ncost = 2
             [[rules]]\nid = \"z\"\nmatch = { path = \"/z\" }\nplans = [\"three\"]\ncost = 3",
        )
        .told("ok 0 three, no three")
        .left("KEY five 3, KEY three 0"),
        row(
            "a rule that limits nothing adds nothing",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = \"unlimited\"",
        )
        .told("ok 2 three, ok 1 three")
        .left("KEY three 1"),
        row(
            "a banned rule bans what it is charged with",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = \"banned\"",
        )
        .told("banned, banned")
        .left("KEY three 3"),
        row(
            "a chain goes on through the rules of its rules",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"five\"]\nalso = [\"all\", \"x\"]
             [[rules]]\nid = \"all\"\nmatch = { path = \"/all\" }\nkey = [\"literal:all\"]\nplans = [\"three\"]",
        )
        .told("ok 2 three, ok 1 three, ok 0 three, no three")
        .left("KEY five 2, static:all three 0"),
        row(
            "a rule of one key has that key at every door",
            "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"literal:all\"]\nplans = [\"three\"]",
        )
        .at(&Door::NOT_GRPC)
        .told("ok 2 three, ok 1 three")
        .left("static:all three 1, KEY three 3"),
        row(
            "a chain may go through a tenant's own plan",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"pro\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = \"tenant\"",
        )
        .by(Acme)
        .at(&Door::NOT_GRPC)
        .told("ok 4 five, ok 3 five")
        .left("KEY five 3"),
        row(
            "a rule that is unlimited has no say when the store fails",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = \"unlimited\"\non_failure = \"deny\"\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"three\"]",
        )
        .told("ok 2 three")
        .left("KEY three 2"),
    ]
}

fn failures() -> Vec<Row> {
    let deny_also = "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nalso = [\"y\"]
        [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"five\"]\non_failure = \"deny\"";
    vec![
        row("the store's policy holds", "[store]\non_failure = \"deny\"\n[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]")
            .told("ok 2 three, ok 1 three")
            .down("deny"),
        row("the store's policy may be local", "[store]\non_failure = \"local\"\n[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]")
            .told("ok 2 three, ok 1 three, ok 0 three, no three")
            .down("local"),
        row("a rule's own policy holds", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\non_failure = \"deny\"")
            .told("ok 2 three")
            .down("deny"),
        row(
            "a rule's own policy overrides a stricter one",
            "[store]\non_failure = \"deny\"\n[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\non_failure = \"allow\"",
        )
        .told("ok 2 three")
        .down("allow"),
        row("the strictest policy of a chain holds", deny_also).told("ok 2 three, ok 1 three").down("deny"),
        row("the strictest policy of a chain holds for tenants, too", deny_also)
            .by(Acme)
            .told("ok 2 three, ok 1 three")
            .down("deny"),
        row(
            "the rule's own may be the strictest",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\non_failure = \"deny\"\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"five\"]\non_failure = \"allow\"",
        )
        .told("ok 2 three")
        .down("deny"),
        row(
            "local is stricter than allow",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"three\"]\non_failure = \"local\"",
        )
        .told("ok 2 three, ok 1 three, ok 0 three, no three")
        .down("local"),
        row(
            "deny is stricter than local",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\non_failure = \"local\"\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"three\"]\non_failure = \"deny\"",
        )
        .told("ok 2 three")
        .down("deny"),
    ]
}

fn shadows() -> Vec<Row> {
    let three = "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nmode = \"shadow\"\ncost = 3";
    let banned = "[[rules]]\nid = \"x\"\nMATCH\nplans = \"banned\"\nmode = \"shadow\"";
    let by_header =
        "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"header:x-who\"]\nplans = [\"three\"]\nmode = \"shadow\"";
    let mut rows = vec![
        row("a rule that watches lets pass, and spends from no enforced bucket", three)
            .at(&Door::NAMED)
            .told("watch ok 0 three, watch no 0 three, watch no 0 three")
            .left("KEY three 3"),
        row(
            "a rule that watches lets pass while the store is down",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nmode = \"shadow\"\non_failure = \"deny\"\ncost = 3",
        )
        .at(&Door::NAMED)
        .told("watch ok 0 three, watch no 0 three")
        .left("KEY three 3"),
        row("a chain of a rule that watches only watches", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"five\"]\nmode = \"shadow\"\nalso = [\"y\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/y\" }\nplans = [\"three\"]\ncost = 3")
        .at(&Door::NAMED)
        .told("watch ok 0 three, watch no 0 three")
        .left("KEY five 5, KEY three 3"),
        row("a tenant's plan may be too small for a rule that watches", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"\nanonymous_plan = \"pro\"\nmode = \"shadow\"\ncost = 6")
            .by(Acme)
            .at(&Door::NAMED)
            .told("free, free")
            .left("KEY five 5"),
        row("a rule for tenants alone that watches lets strangers pass", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"\nmode = \"shadow\"")
            .at(&[Door::Check, Door::Batch, Door::Resp, Door::AuthByRule])
            .told("free, free")
            .left("KEY free 10"),
        row("a banned rule that watches lets pass", banned)
            .at(&Door::NAMED)
            .told("free, free")
            .left("KEY free 10"),
        row("a rule that watches lets pass who has no key", by_header)
            .at(&[Door::AuthByRule])
            .told("free, free")
            .left("KEY three 3"),
    ];
    rows.extend(shadows_of_enforced(three, banned, by_header));
    rows
}

/// An enforced rule decides as it would without the rule in shadow mode.
fn shadows_of_enforced(three: &'static str, banned: &'static str, by_header: &'static str) -> Vec<Row> {
    vec![
        row("a rule that watches displaces no enforced one", three)
            .at(&Door::PROXIED)
            .told("ok 9 free, ok 8 free, ok 7 free")
            .left("KEY free 7, KEY three 3"),
        row(
            "a rule that watches takes nothing from the bucket of an enforced one",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nmode = \"shadow\"\ncost = 3
             [[rules]]\nid = \"default\"\nplans = [\"three\"]",
        )
        .at(&Door::PROXIED)
        .told("ok 2 three, ok 1 three, ok 0 three, no three")
        .left("KEY three 0"),
        row(
            "a rule that watches is asked beside a less specific one of the same descriptor",
            "[[rules]]\nid = \"x\"\nmatch = { domain = \"edge\", entries = [\"who=ann\"] }\nplans = [\"three\"]\nmode = \"shadow\"\ncost = 3
             [[rules]]\nid = \"y\"\nMATCH\nplans = [\"three\"]",
        )
        .at(&Door::GRPC)
        .told("ok 2 three, ok 1 three, ok 0 three, no three")
        .left("KEY three 0"),
        row(
            "a `default` that watches leaves the built-in one in force",
            "[[rules]]\nid = \"default\"\nplans = [\"three\"]\ncost = 3\nmode = \"shadow\"",
        )
        .at(&Door::PROXIED)
        .told("ok 9 free, ok 8 free")
        .left("KEY free 8, KEY three 3"),
        row(
            "a `default` that watches is asked by itself where unmatched requests pass",
            "[[rules]]\nid = \"default\"\nplans = [\"three\"]\ncost = 3\nmode = \"shadow\"",
        )
        .top("unmatched = \"pass\"")
        .at(&Door::PROXIED)
        .told("watch ok 0 three, watch no 0 three")
        .left("KEY free 10, KEY three 3"),
        row("a banned rule that watches displaces no enforced one", banned)
            .at(&Door::PROXIED)
            .told("ok 9 free, ok 8 free")
            .left("KEY free 8"),
        row("a rule that watches and finds no key displaces no enforced one", by_header)
            .at(&Door::PROXIED)
            .told("ok 9 free, ok 8 free")
            .left("KEY free 8, KEY three 3"),
    ]
}

fn tenants() -> Vec<Row> {
    let own = "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"\nanonymous_plan = \"three\"";
    vec![
        row("a tenant has its plan", own).by(Acme).told("ok 4 five, ok 3 five").left("KEY five 3, KEY three 3"),
        row("a stranger has the anonymous plan", own).told("ok 2 three, ok 1 three").left("KEY three 1, KEY five 5"),
        row("a tenant may be under listed plans", "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]")
            .by(Acme)
            .at(&Door::NOT_GRPC)
            .told("ok 2 three, ok 1 three")
            .left("KEY three 1"),
        row("a rule may be for tenants alone", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"")
            .by(Acme)
            .at(&Door::NOT_GRPC)
            .told("ok 4 five")
            .left("KEY five 4"),
        row("a rule for tenants alone refuses strangers", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"")
            .at(&Door::NOT_GRPC)
            .told("401, 401")
            .left("KEY free 10"),
        row("a tenant's plan may be too small for a cost", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"\nanonymous_plan = \"pro\"\ncost = 6")
            .by(Acme)
            .told("never, never")
            .left("KEY five 5"),
        row("a tenant may have limits of its own", "[[tenants]]\nid = \"bolt\"\nplan = \"five\"\nlimits = { five = { capacity = 7, refill = \"1/h\" } }
             [[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"\nanonymous_plan = \"three\"")
            .by(Acme)
            .told("ok 4 five")
            .left("KEY five 4, tenant:bolt five 7"),
        row("a tenant and everybody share a chain", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"\nanonymous_plan = \"three\"\nalso = [\"all\"]
             [[rules]]\nid = \"all\"\nmatch = { path = \"/all\" }\nkey = [\"literal:all\"]\nplans = [\"three\"]")
            .by(Acme)
            .told("ok 2 three, ok 1 three")
            .left("KEY five 3, static:all three 1"),
        row("a wrong key is paid for by address where tenants alone may pass", "[[rules]]\nid = \"x\"\nMATCH\nplans = \"tenant\"")
            .by(WrongKey)
            .at(&Door::REQUESTS)
            .told("401, 401")
            .left("KEY free 8"),
        row("a wrong key is a stranger's where strangers may pass", own)
            .by(WrongKey)
            .at(&[Door::AuthByRule, Door::AuthByMatch])
            .told("ok 2 three, ok 1 three")
            .left("KEY three 1"),
        row("a wrong key is a stranger's, and the gateway knows it for wrong", own)
            .by(WrongKey)
            .at(&[Door::Gateway])
            .told("401, 401")
            .left("KEY three 1"),
        row(
            "a key that is not known blocks nothing that only watches",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = [\"three\"]\nmode = \"shadow\"",
        )
        .by(WrongKey)
        .at(&[Door::AuthByRule])
        .told("watch ok 2 three, watch ok 1 three")
        .left("KEY three 3, KEY free 10"),
        row(
            "a key that is not known costs nothing where nothing is limited",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = \"unlimited\"",
        )
        .by(WrongKey)
        .at(&[Door::AuthByRule, Door::AuthByMatch])
        .told("free, free")
        .left("KEY free 10"),
        row(
            "a wrong key that the gateway refuses is paid for even where nothing is limited",
            "[[rules]]\nid = \"x\"\nMATCH\nplans = \"unlimited\"",
        )
        .by(WrongKey)
        .at(&[Door::Gateway])
        .told("401, 401")
        .left("KEY free 8"),
    ]
}

fn keys() -> Vec<Row> {
    let by = |key| match key {
        "who" => "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"header:x-who\"]\nplans = [\"three\"]",
        "principal" => "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"principal\"]\nplans = [\"three\"]",
        "tenant" => "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"tenant\"]\nplans = [\"three\"]",
        "joined" => "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"tenant+ip\", \"ip+path\"]\nplans = [\"three\"]",
        "path" => "[[rules]]\nid = \"x\"\nmatch = { path = \"/*\" }\nkey = [\"path\"]\nplans = [\"three\"]",
        _ => "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"literal:all\"]\nplans = [\"three\"]",
    };
    vec![
        row("a header may be the key", by("who"))
            .with(&[("x-who", "ann")])
            .at(&Door::REQUESTS)
            .told("ok 2 three, ok 1 three, ok 0 three, no three")
            .left("KEY three 3"),
        row("without the header that is the key a request is refused", by("who"))
            .at(&Door::REQUESTS)
            .told("401, 401")
            .left("KEY three 3, KEY free 10"),
        row("a principal is a trusted proxy's word", by("principal"))
            .with(&[("x-forwarded-user", "ann")])
            .at(&Door::REQUESTS)
            .told("ok 2 three, ok 1 three")
            .left("principal:ann three 1"),
        row("without a principal a request is refused", by("principal")).at(&Door::REQUESTS).told("401"),
        row("without a tenant a request is refused", by("tenant"))
            .at(&Door::REQUESTS)
            .told("401")
            .left("KEY free 10"),
        row("a tenant may be the only key", by("tenant"))
            .by(Acme)
            .at(&Door::REQUESTS)
            .told("ok 2 three")
            .left("KEY three 2"),
        row("a key may be joined of two", by("joined"))
            .at(&Door::REQUESTS)
            .told("ok 2 three, ok 1 three")
            .left("joined:14:ip:203.0.113.77:path:/x three 1"),
        row("a key may be joined of a tenant and its address", by("joined"))
            .by(Acme)
            .at(&Door::REQUESTS)
            .told("ok 2 three")
            .left("joined:11:tenant:acme14:ip:203.0.113.7 three 2"),
        row("a path is one key, however it is spelt", by("path"))
            .request("GET", "/a/./b//%63;v=1/")
            .told("ok 2 three, ok 1 three")
            .left("path:/a/b/c three 1"),
        row("everybody may share a key", by("all"))
            .at(&Door::REQUESTS)
            .told("ok 2 three")
            .left("static:all three 2"),
        row(
            "the address counts by its network",
            "[[rules]]\nid = \"x\"\nMATCH\nkey = [\"ip\"]\nplans = [\"three\"]",
        )
        .with(&[("x-forwarded-for", "2001:db8:1:2:3::4")])
        .told("ok 2 three")
        .left("ip:2001:db8:1:2::/64 three 2"),
    ]
}

fn matching() -> Vec<Row> {
    let two =
        "[[rules]]\nid = \"x\"\nmatch = { path = \"/login\", methods = [\"POST\"] }\nplans = [\"three\"]
        [[rules]]\nid = \"default\"\nplans = [\"five\"]";
    let hosts = "[[rules]]\nid = \"x\"\nmatch = { hosts = [\"api.example.com\", \"*.dev.example.com\"] }\nplans = [\"three\"]
        [[rules]]\nid = \"default\"\nplans = [\"five\"]";
    let reads = "[[rules]]\nid = \"x\"\nmatch = { methods = [\"GET\"] }\nplans = [\"three\"]
        [[rules]]\nid = \"default\"\nplans = [\"five\"]";
    vec![
        row("a rule is for its method and path", two)
            .request("POST", "/login")
            .told("ok 2 three")
            .left("KEY five 5"),
        row("another method is not its own", two)
            .request("GET", "/login")
            .told("ok 4 five")
            .left("KEY three 3"),
        row("another path is not its own", two)
            .request("POST", "/logins")
            .told("ok 4 five")
            .left("KEY three 3"),
        row("another spelling of the path is", two)
            .request("POST", "//%6Cogin/")
            .told("ok 2 three")
            .left("KEY five 5"),
        row("GET covers HEAD", reads).request("HEAD", "/a").told("ok 2 three").left("KEY five 5"),
        row("GET covers no POST", reads).request("POST", "/a").told("ok 4 five").left("KEY three 3"),
        row("a rule is for its hosts", hosts)
            .with(&[("host", "API.example.com:8443")])
            .told("ok 2 three")
            .left("KEY five 5"),
        row("a rule may be for all hosts below", hosts)
            .with(&[("host", "a.dev.example.com")])
            .told("ok 2 three"),
        row("another host is not its own", hosts)
            .with(&[("host", "www.example.com")])
            .told("ok 4 five")
            .left("KEY three 3"),
        row(
            "the most specific rule holds",
            "[[rules]]\nid = \"x\"\nmatch = { path = \"/*\" }\nplans = [\"five\"]
             [[rules]]\nid = \"y\"\nmatch = { path = \"/a/*/c\" }\nplans = [\"three\"]
             [[rules]]\nid = \"z\"\nmatch = { path = \"/a/*\" }\nplans = [\"five\"]",
        )
        .request("GET", "/a/b/c")
        .told("ok 2 three")
        .left("KEY five 5"),
        row(
            "a rule for the host goes before one for the path",
            "[[rules]]\nid = \"x\"\nmatch = { path = \"/a/b\" }\nplans = [\"five\"]
             [[rules]]\nid = \"y\"\nmatch = { hosts = [\"api.example.com\"] }\nplans = [\"three\"]",
        )
        .request("GET", "/a/b")
        .with(&[("host", "api.example.com")])
        .told("ok 2 three")
        .left("KEY five 5"),
    ]
}

fn defaults() -> Vec<Row> {
    let other = "[[rules]]\nid = \"x\"\nmatch = { path = \"/other\" }\nplans = [\"three\"]";
    vec![
        row("what no rule matches falls to the rule that is built in", other)
            .request("GET", "/free")
            .told("ok 9 free, ok 8 free")
            .left("KEY free 8"),
        row("a tenant that no rule matches has its plan", other)
            .by(Acme)
            .request("GET", "/free")
            .told("ok 4 five")
            .left("KEY five 4, ip:203.0.113.7 free 10"),
        row(
            "the rule that is built in goes when one of its name is there",
            "[[rules]]\nid = \"default\"\nplans = [\"three\"]",
        )
        .request("GET", "/free")
        .told("ok 2 three")
        .left("KEY free 10"),
        row("requests may be left without a limit", other)
            .top("unmatched = \"pass\"")
            .request("GET", "/free")
            .told("free, free")
            .left("KEY free 10"),
        row("and those that a rule matches keep theirs", other)
            .top("unmatched = \"pass\"")
            .request("GET", "/other")
            .told("ok 2 three")
            .left("KEY three 2"),
    ]
}

fn descriptors() -> Vec<Row> {
    let rule = |entries| match entries {
        "star" => {
            "[[rules]]\nid = \"x\"\nmatch = { domain = \"edge\", entries = [\"who=a*n\"] }\nplans = [\"three\"]"
        }
        "any" => {
            "[[rules]]\nid = \"x\"\nmatch = { domain = \"*\", entries = [\"who\"] }\nplans = [\"three\"]"
        }
        "subset" => {
            "[[rules]]\nid = \"x\"\nmatch = { domain = \"edge\", entries = [\"who\"], subset = true }\nplans = [\"three\"]"
        }
        _ => {
            "[[rules]]\nid = \"x\"\nmatch = { domain = \"edge\", entries = [\"who=ben\"] }\nplans = [\"three\"]"
        }
    };
    vec![
        row("a star stands for any text in a value", rule("star"))
            .at(&Door::GRPC)
            .told("ok 2 three")
            .left("KEY three 2"),
        row("a star stands for any domain", rule("any"))
            .at(&Door::GRPC)
            .told("ok 2 three")
            .left("KEY three 2"),
        row("entries may be some of those there are", rule("subset"))
            .at(&Door::GRPC)
            .told("ok 2 three")
            .left("KEY three 2"),
        row("descriptors that no rule matches pass", rule("ben"))
            .at(&Door::GRPC)
            .told("free, free")
            .left("KEY three 3"),
    ]
}
