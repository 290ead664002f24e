//! Webhooks as an operator sets them up: in the file.

use std::fs;

use serde_json::Value;
use spile_observe::webhook::{Secret, verify};

use crate::support::{Spile, receiver};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_in_the_file_hears_of_a_tenant_over_its_limit() {
    let (url, mut hears) = receiver("/spile").await;
    let folder = tempfile::tempdir().expect("there is room for a folder");
    fs::write(folder.path().join("hook.secret"), SECRET).expect("there is room for a file");
    let hook = format!(
        "[[webhooks]]\nurl = \"{url}\"\nsecret_file = \"hook.secret\"\nevents = [\"tenant_over\"]\nallow_private = true\n"
    );
    let _spile = Spile::start_in(folder.path(), &hook).await.keep_busy();
    let (headers, body) = hears.recv().await.expect("the receiver runs");
    let field = |name: &str| headers[name].to_str().expect("header fields are ASCII");
    let timestamp = field("spile-timestamp").parse().expect("seconds");
    assert!(verify(&Secret::from(SECRET), timestamp, &body, field("spile-signature")));
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["events"][0]["type"], "tenant_over");
    assert_eq!(body["events"][0]["tenant"], "acme");
}
