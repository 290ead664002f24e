//! `HAProxy`, by its Lua HTTP client.

use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks, system};

const HAPROXY: Kind = Kind { heading: "HAProxy", command, refusal: 429, while_down: 503 };
/// The line of the guide that fails closed.
const CLOSED: &str = "    http-request deny deny_status 503 unless { var(txn.spile) -m str pass }\n";

/// `HAProxy` with both of the guide's files.
fn command(site: &Site, section: &str) -> Command {
    let lua = site.write("spile.lua", &site.filled(blocks(section, "lua")[0]));
    let settings = site.filled(blocks(section, "haproxy")[0]);
    let settings = settings.replace("/etc/haproxy/spile.lua", &lua.display().to_string());
    let mut haproxy = system("haproxy");
    haproxy.args(["-db", "-f"]).arg(site.write("haproxy.cfg", &settings));
    haproxy
}

#[tokio::test]
async fn haproxy_lets_through_what_the_rules_allow_and_hands_on_the_429_as_it_is() {
    HAPROXY.hands_on_the_refusal().await;
}

#[tokio::test]
async fn haproxy_is_not_fooled_about_which_request_it_asks_for() {
    HAPROXY.is_not_fooled().await;
}

#[tokio::test]
async fn haproxy_passes_on_no_name_that_a_client_gives_itself() {
    HAPROXY.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn haproxy_knows_tenants_by_their_keys() {
    HAPROXY.passes_on_the_key_of_a_tenant().await;
}

#[tokio::test]
async fn haproxy_fails_closed_while_spile_is_down() {
    HAPROXY.fails_closed().await;
}

#[tokio::test]
async fn haproxy_fails_open_without_the_line_that_the_guide_names() {
    HAPROXY
        .fails_open(|section| {
            assert!(section.contains(CLOSED), "the guide has the line");
            section.replacen(CLOSED, "", 1)
        })
        .await;
}
