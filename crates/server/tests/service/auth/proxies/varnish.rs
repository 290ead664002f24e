//! Varnish, which asks Spile as if it were the application and then starts the request again.

use std::net::SocketAddr;
use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks, system};

const VARNISH: Kind = Kind { heading: "Varnish", command, refusal: 429, while_down: 503 };

/// Varnish with the guide's code, and no file outside its folder.
fn command(site: &Site, section: &str) -> Command {
    let backend =
        |address: SocketAddr| format!(".host = \"{}\";\n    .port = \"{}\";", address.ip(), address.port());
    let vcl = blocks(section, "vcl")[0]
        .replace(&backend(([127, 0, 0, 1], 3000).into()), &backend(site.app))
        .replace(&backend(([127, 0, 0, 1], 8080).into()), &backend(site.spile));
    let mut varnish = system("varnishd");
    varnish
        .args(["-F", "-j", "none", "-a", &site.front.to_string(), "-s", "default,16m", "-n"])
        .arg(site.folder.path().join("varnish"))
        .arg("-f")
        .arg(site.write("default.vcl", &vcl));
    varnish
}

#[tokio::test]
async fn varnish_lets_through_what_the_rules_allow_and_hands_on_the_429_as_it_is() {
    VARNISH.hands_on_the_refusal().await;
}

#[tokio::test]
async fn varnish_is_not_fooled_about_which_request_it_asks_for() {
    VARNISH.is_not_fooled().await;
}

#[tokio::test]
async fn varnish_passes_on_no_name_that_a_client_gives_itself() {
    VARNISH.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn varnish_knows_tenants_by_their_keys() {
    VARNISH.passes_on_the_key_of_a_tenant().await;
}

#[tokio::test]
async fn varnish_limits_pages_from_its_cache_too() {
    let cached = VARNISH.limits_what_it_has_cached().await;
    // Two numbers: of this request, and of the one that filled the cache.
    let numbers = cached.headers["x-varnish"].to_str().expect("numbers").split(' ').count();
    assert_eq!(numbers, 2, "{cached:?}");
}

#[tokio::test]
async fn varnish_fails_closed_while_spile_is_down() {
    VARNISH.fails_closed().await;
}

#[tokio::test]
async fn varnish_fails_open_if_told_to() {
    VARNISH
        .fails_open(|section| {
            let open = blocks(section, "vcl")[1];
            section.replacen("sub vcl_deliver {", &format!("{open}\nsub vcl_deliver {{"), 1)
        })
        .await;
}
