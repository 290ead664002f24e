//! Caddy, by `forward_auth`.

use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks};

const CADDY: Kind = Kind { heading: "Caddy", command, refusal: 429, while_down: 502 };

/// Caddy with the guide's site, and no file outside its folder.
fn command(site: &Site, section: &str) -> Command {
    let address = format!("http://:{} {{\n    bind {}", site.front.port(), site.front.ip());
    let guide = blocks(section, "caddyfile")[0].replace("http://:8000 {", &address);
    let settings = format!("{{\n    admin off\n    auto_https off\n}}\n{}", site.filled(&guide));
    let mut caddy = Command::new("caddy");
    caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(site.write("Caddyfile", &settings));
    for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        caddy.env(variable, site.folder.path());
    }
    caddy
}

#[tokio::test]
async fn caddy_lets_through_what_the_rules_allow_and_hands_on_the_429_as_it_is() {
    CADDY.hands_on_the_refusal().await;
}

#[tokio::test]
async fn caddy_is_not_fooled_about_which_request_it_asks_for() {
    CADDY.is_not_fooled().await;
}

#[tokio::test]
async fn caddy_passes_on_no_name_that_a_client_gives_itself() {
    CADDY.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn caddy_fails_closed_while_spile_is_down() {
    CADDY.fails_closed().await;
}

#[tokio::test]
async fn caddy_fails_open_if_told_to() {
    CADDY
        .fails_open(|section| {
            let handler = format!("http://:8000 {{\n{}", blocks(section, "caddyfile")[1]);
            section.replace("http://:8000 {\n", &handler)
        })
        .await;
}
