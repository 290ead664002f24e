//! The pictures of `spile replay` in a real browser.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

use crate::support::{Browser, output_in, output_of};

const OVERFLOW: &str = "return document.documentElement.scrollWidth - innerWidth";

const CONFIG: &str = r#"
[plans]
free = { capacity = 10, refill = "1/s" }
login = { capacity = 3, refill = "3/m" }
[[rules]]
id = "default"
key = ["ip"]
plans = ["free"]
[[rules]]
id = "login"
match = { path = "/login" }
key = ["ip+path"]
plans = ["login"]
[[rules]]
id = "search"
match = { path = "/search/*" }
key = ["path"]
plans = ["login"]
mode = "shadow"
"#;

/// Two hours of requests: steady ones, a burst in the middle, and paths that would be markup.
fn log() -> String {
    let mut log = String::new();
    for second in 0..7_200_u32 {
        let (hour, minute, rest) = (10 + second / 3_600, second / 60 % 60, second % 60);
        let busy = if (3_000..3_900).contains(&second) { 6 } else { 1 };
        for request in 0..busy {
            let path = match (second + request) % 7 {
                0 => "/login",
                1 | 2 => "/search/%3Cscript%3Ealert(1)",
                _ => "/scores",
            };
            let client = if busy > 1 { 7 } else { second % 40 };
            let _ = writeln!(
                log,
                "203.0.113.{client} - - [15/Nov/2026:{hour}:{minute:02}:{rest:02} +0000] \"GET {path} HTTP/1.1\" 200 5"
            );
        }
    }
    log
}

fn replay(folder: &Path) -> (String, String) {
    let path = |name: &str| folder.join(name).to_str().expect("its name is text").to_owned();
    std::fs::write(path("spile.toml"), CONFIG).expect("the folder is ours");
    let (config, svg, html) = (path("spile.toml"), path("replay.svg"), path("replay.html"));
    let flags = ["replay", "-", "--config", &config, "--svg", &svg, "--html", &html];
    let output = output_of(env!("CARGO_BIN_EXE_spile"), &flags, &log());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (format!("file://{svg}"), format!("file://{html}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_replay_fits_a_phone_and_a_desk_in_light_and_dark() {
    let folder = tempfile::tempdir().expect("a folder");
    let (svg, html) = replay(folder.path());
    let browser = Browser::open(&html).await;
    for (width, height) in [(360, 780), (1440, 900)] {
        for scheme in ["light", "dark"] {
            browser.resize(width, height).await;
            browser.prefer(scheme).await;
            assert!(browser.eval(OVERFLOW).await.as_i64() <= Some(0), "overflow at {width} px, {scheme}");
            browser.picture(&format!("replay-{width}-{scheme}")).await;
        }
    }
    let charts = "return [...document.querySelectorAll('svg.chart')].map(e => e.ariaLabel.length > 10 && e.getBBox().height > 50)";
    assert_eq!(browser.eval(charts).await, json!([true, true, true, true]), "all requests, and three rules");
    let markup = "return [document.scripts.length, document.body.innerText.includes('<script>')]";
    assert_eq!(browser.eval(markup).await, json!([0, true]), "a path is text");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    drop(browser);
    let browser = Browser::open(&svg).await;
    let whole = "return [document.documentElement.tagName, document.querySelectorAll('path.no').length > 0]";
    assert_eq!(browser.eval(whole).await, json!(["svg", true]));
    browser.resize(1000, 1000).await;
    browser.picture("replay-svg").await;
}

const SITE: &str = r#"
[plans]
free = { capacity = 20, refill = "2/s" }
login = { capacity = 5, refill = "12/min" }
[[rules]]
id = "default"
key = ["ip"]
plans = ["free"]
[[rules]]
id = "login"
match = { path = "/login" }
key = ["ip"]
plans = ["login"]
"#;

/// Twelve hours of a site: visitors, who are most at noon, a crawler in the morning, and a client that guesses passwords.
fn day_of_a_site() -> String {
    let mut state = 1_u64;
    let mut below = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut log = String::new();
    for second in 0..43_200_u64 {
        let visitors = 20 + 40 * second * (43_200 - second) / (21_600 * 21_600);
        let mut requests = Vec::new();
        for _ in 0..3 {
            if below(100) < visitors {
                let path = if below(20) == 0 { "/login" } else { "/scores" };
                requests.push((format!("198.51.100.{}", below(200)), path));
            }
        }
        if (10_800..13_800).contains(&second) {
            requests.extend((0..4).map(|_| ("203.0.113.7".to_owned(), "/scores")));
        }
        if (28_800..31_200).contains(&second) && below(10) < 7 {
            requests.push(("203.0.113.99".to_owned(), "/login"));
        }
        let (hour, minute, rest) = (6 + second / 3_600, second / 60 % 60, second % 60);
        for (client, path) in requests {
            let _ = writeln!(
                log,
                "{client} - - [15/Nov/2026:{hour:02}:{minute:02}:{rest:02} +0000] \"GET {path} HTTP/1.1\" 200 5"
            );
        }
    }
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_a_day_shows_who_came_too_often_and_when() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("spile.toml"), SITE).expect("the folder is ours");
    let flags = ["replay", "-", "--config", "spile.toml", "--svg", "replay.svg"];
    let output = output_in(folder.path(), env!("CARGO_BIN_EXE_spile"), &flags, &day_of_a_site());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let browser = Browser::open(&format!("file://{}", folder.path().join("replay.svg").display())).await;
    let shown = browser.eval("return document.documentElement.textContent").await.to_string();
    for words in ["spile.toml", "ip:203.0.113.7 · default", "ip:203.0.113.99 · login"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    browser.resize(960, 720).await;
    browser.picture("replay").await;
}
