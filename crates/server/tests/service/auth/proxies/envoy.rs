//! Envoy, by `ext_authz`.

use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks, envoy};

const ENVOY: Kind = Kind { heading: "Envoy", command, refusal: 429, while_down: 503 };

fn command(site: &Site, section: &str) -> Command {
    let settings = blocks(section, "yaml")[0]
        // A test machine may be busy; how long Envoy waits for an answer is not what is tested.
        .replace("timeout: 0.25s", "timeout: 5s")
        // How long Envoy keeps a connection after it has refused a request unread.
        .replace("stat_prefix: edge", "stat_prefix: edge\n                delayed_close_timeout: 0.05s");
    envoy(site, &settings)
}

#[tokio::test]
async fn envoy_lets_through_what_the_rules_allow_and_hands_on_the_429_as_it_is() {
    ENVOY.hands_on_the_refusal().await;
}

#[tokio::test]
async fn envoy_is_not_fooled_about_which_request_it_asks_for() {
    ENVOY.is_not_fooled().await;
}

#[tokio::test]
async fn envoy_passes_on_no_name_that_a_client_gives_itself() {
    ENVOY.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn envoy_fails_closed_while_spile_is_down() {
    ENVOY.fails_closed().await;
}

#[tokio::test]
async fn envoy_fails_open_if_told_to() {
    ENVOY
        .fails_open(|section| section.replace("failure_mode_allow: false", "failure_mode_allow: true"))
        .await;
}
