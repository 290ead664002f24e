//! Traefik, by `forwardAuth`.

use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks, unpacked};

const TRAEFIK: Kind = Kind { heading: "Traefik", command, refusal: 429, while_down: 500 };

/// Traefik with both of the guide's files.
fn command(site: &Site, section: &str) -> Command {
    let [entry, rest] = blocks(section, "yaml")[..] else { panic!("the guide shows two files") };
    let dynamic = site.write("dynamic.yml", &site.filled(rest));
    let entry = site.filled(entry).replace("/etc/traefik/dynamic.yml", &dynamic.display().to_string());
    let mut traefik = unpacked("traefik");
    traefik.arg(format!("--configFile={}", site.write("traefik.yml", &entry).display()));
    traefik
}

#[tokio::test]
async fn traefik_lets_through_what_the_rules_allow_and_hands_on_the_429_as_it_is() {
    TRAEFIK.hands_on_the_refusal().await;
}

#[tokio::test]
async fn traefik_is_not_fooled_about_which_request_it_asks_for() {
    TRAEFIK.is_not_fooled().await;
}

#[tokio::test]
async fn traefik_passes_on_no_name_that_a_client_gives_itself() {
    TRAEFIK.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn traefik_fails_closed_while_spile_is_down() {
    TRAEFIK.fails_closed().await;
}
