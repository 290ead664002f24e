//! Webhooks as an operator sets them up: in the file.

use std::fs;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use spile_observe::webhook::{Secret, verify};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::Spile;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Hears one request after another, and thanks for each.
async fn receiver() -> (String, mpsc::UnboundedReceiver<(http::HeaderMap, Bytes)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let url = format!("http://{}/spile", listener.local_addr().expect("it is bound"));
    let (heard, hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let heard = heard.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let heard = heard.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let _listened = heard.send((parts.headers, body.collect().await?.to_bytes()));
                    Ok::<_, hyper::Error>(http::Response::new(Full::<Bytes>::default()))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (url, hears)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_in_the_file_hears_of_a_tenant_over_its_limit() {
    let (url, mut hears) = receiver().await;
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
