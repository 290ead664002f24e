//! A real headless Chromium, driven over the `WebDriver` protocol.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use spile_testkit::redis::free_port;

use super::{Client, Peer, until};

/// One window. It closes when dropped.
pub(crate) struct Browser {
    client: Client,
    session: String,
    _driver: Peer,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) async fn open(url: &str) -> Self {
        let (client, port) = (Client::new(), free_port());
        let driver = Peer::start("chromedriver", &[&format!("--port={port}")]);
        let base = format!("http://127.0.0.1:{port}");
        until("chromedriver", async || client.get(&format!("{base}/status")).await.ok()).await;
        let profile = tempfile::tempdir().expect("there is room for a profile");
        let user_data = format!("--user-data-dir={}", profile.path().display());
        // Tests run as root in containers, where Chromium's sandbox cannot; the page is our own.
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            // Nothing but the page is asked for.
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-quic",
            "--disable-sync",
            "--no-first-run",
            &user_data,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let (_, answer) = client.post(&format!("{base}/session"), &wanted).await.expect("it answers");
        let answer: Value = serde_json::from_str(&answer).expect("WebDriver speaks JSON");
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}"));
        let session = format!("{base}/session/{id}");
        let browser = Self { client, session, _driver: driver, _profile: profile };
        browser.post("url", json!({"url": url})).await;
        browser
    }

    /// What a script in the page returns.
    pub(crate) async fn eval(&self, script: &str) -> Value {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// Waits until a script in the page returns something true, and returns that.
    pub(crate) async fn until(&self, what: &str, script: &str) -> Value {
        let truth = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        until(what, async || Some(self.eval(script).await).filter(truth)).await
    }

    /// Errors that the page wrote to its console since the last time.
    pub(crate) async fn console_errors(&self) -> Vec<String> {
        let entries = self.post("se/log", json!({"type": "browser"})).await;
        let severe = |entry: &&Value| entry["level"] == "SEVERE";
        entries.as_array().into_iter().flatten().filter(severe).map(ToString::to_string).collect()
    }

    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    pub(crate) async fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Leaves a picture of the whole page among the test's artefacts.
    pub(crate) async fn picture(&self, name: &str) {
        let shot = self.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        let bytes = STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("it is Base64");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
        std::fs::write(path, bytes).expect("there is room for a picture");
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("{}/{path}", self.session);
        let (status, text) =
            self.client.send(Method::POST, &url, body.to_string()).await.expect("the driver answers");
        assert!(status.is_success(), "{path}: {text}");
        let answer: Value = serde_json::from_str(&text).expect("WebDriver speaks JSON");
        answer["value"].clone()
    }
}

impl Drop for Browser {
    /// Ends the session and waits for that: Chromium would outlive its driver.
    fn drop(&mut self) {
        let Some((address, path)) = self.session.trim_start_matches("http://").split_once('/') else {
            return;
        };
        let Ok(mut driver) = TcpStream::connect(address) else { return };
        let request = format!("DELETE /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        if driver.write_all(request.as_bytes()).is_ok() {
            // Whatever it says, it has been told.
            let _ = driver.read(&mut [0; 256]);
        }
    }
}
