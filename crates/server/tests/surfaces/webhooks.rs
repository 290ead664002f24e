//! Webhooks as an operator sets them up: in the file.

use std::fs;

use serde_json::Value;
use spile_observe::webhook::{SigningSecret, verify};
use tempfile::TempDir;

use crate::support::{Spile, receiver, until};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn folder_with_secret() -> TempDir {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    fs::write(folder.path().join("hook.secret"), SECRET).expect("there is room for a file");
    folder
}

fn hook(url: &str, event: &str) -> String {
    format!(
        "[[webhooks]]\nurl = \"{url}\"\nsecret_file = \"hook.secret\"\nevents = [\"{event}\"]\nallow_private = true\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_in_the_file_hears_of_a_tenant_over_its_limit() {
    let (url, mut hears) = receiver("/spile").await;
    let folder = folder_with_secret();
    let hook = hook(&url, "tenant_over");
    let _spile = Spile::start_in(folder.path(), &hook).await.keep_busy();
    let (headers, body) = hears.recv().await.expect("the receiver runs");
    let field = |name: &str| headers[name].to_str().expect("header fields are ASCII");
    let timestamp = field("spile-timestamp").parse().expect("seconds");
    assert!(verify(&SigningSecret::from(SECRET), timestamp, &body, field("spile-signature")));
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["events"][0]["type"], "tenant_over");
    assert_eq!(body["events"][0]["tenant"], "acme");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_a_reload_brings_hears_and_one_that_it_takes_away_does_not() {
    let (old, mut old_hears) = receiver("/old").await;
    let (new, mut new_hears) = receiver("/new").await;
    let folder = folder_with_secret();
    let _spile = Spile::start_in(folder.path(), &hook(&old, "config_refused")).await;
    let file = folder.path().join("spile.toml");
    let write = |text: &str| fs::write(&file, text).expect("the folder is ours");

    write("[plans.free]\ncapacity = -1\n");
    old_hears.recv().await.expect("the receiver runs");
    write(&hook(&new, "config_refused"));
    let mut typed = 0;
    until("the new webhook to hear of a file that is refused", async || {
        // Another mistake each time: a file that has not changed is not read again.
        typed += 1;
        if typed % 20 == 0 {
            write(&format!("[plans.free]\ncapacity = -{typed}\n"));
        }
        new_hears.try_recv().ok()
    })
    .await;
    assert!(old_hears.try_recv().is_err(), "the old webhook is gone");
}
