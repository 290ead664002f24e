//! The dashboard in a real browser.

mod editing;
mod explaining;
mod pages;
mod trouble;

use std::fmt::Write as _;

use crate::support::{Browser, Client, Spile, TOKEN};

const LIVE: &str = "return document.getElementById('link').textContent === 'live'";

/// The dashboard of a server without a token, as it is seen on its own machine.
async fn opened() -> (Spile, Browser) {
    opened_with("").await
}

/// The same, with more in its file.
async fn opened_with(more: &str) -> (Spile, Browser) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let spile = Spile::start_in(folder.path(), more).await.keep_busy();
    let browser = Browser::open(&spile.admin_url("/dashboard")).await;
    browser.until("the stream", LIVE).await;
    (spile, browser)
}

/// The dashboard of a server with a token, which has been typed in.
async fn unlocked() -> (Spile, Browser) {
    let spile = Spile::start_guarded().await.keep_busy();
    let browser = Browser::open(&spile.admin_url("/dashboard")).await;
    browser.until("the gate", "return !document.getElementById('gate').hidden").await;
    type_token(&browser, TOKEN).await;
    browser.until("the stream", LIVE).await;
    (spile, browser)
}

async fn type_token(browser: &Browser, token: &str) {
    let script = format!(
        "document.getElementById('token').value = '{token}'; document.querySelector('#unlock button').click()"
    );
    browser.eval(&script).await;
}

/// Opens a page of the dashboard by its address.
async fn go_to(browser: &Browser, hash: &str) {
    browser.eval(&format!("location.hash = '{hash}'")).await;
}

async fn look_up(browser: &Browser, key: &str) {
    go_to(browser, "#/keys").await;
    browser.until("the field", "return document.getElementById('key') !== null").await;
    let script = format!(
        "document.getElementById('key').value = '{key}'; document.querySelector('#inspect button').click()"
    );
    browser.eval(&script).await;
}

/// So many tenants, as a file has them.
fn tenants(how_many: usize) -> String {
    (0..how_many).fold(String::new(), |mut file, number| {
        write!(file, "[[tenants]]\nid = \"tenant-{number:03}\"\nplan = \"gold\"\n").expect("it is a string");
        file
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_nothing_is_shown_to_whoever_does_not_know_it() {
    let spile = Spile::start_guarded().await.keep_busy();
    let client = Client::new();
    for path in [
        "events",
        "snapshot",
        "house",
        "tenants",
        "history",
        "store",
        "day",
        "minutes",
        "minutes.csv",
        "buckets?key=a",
    ] {
        let url = spile.admin_url(&format!("/dashboard/{path}"));
        let (status, text) = client.get(&url).await.expect("it answers");
        assert_eq!(status, 401, "{path}: {text}");
        let (status, _) = client.with_token("wrong").get(&url).await.expect("it answers");
        assert_eq!(status, 401, "{path}");
    }
    let browser = Browser::open(&spile.admin_url("/dashboard#/tenants")).await;
    browser.until("the gate", "return !document.getElementById('gate').hidden").await;
    for wrong in ["guessed", "gu\u{2713}ssed"] {
        type_token(&browser, wrong).await;
        browser
            .until(
                "the refusal",
                "return document.getElementById('gate-text').textContent.includes('not valid')",
            )
            .await;
    }
    let shown = browser.eval("return document.body.innerText").await.to_string();
    assert!(!shown.contains("acme") && !shown.contains("Search"), "{shown}");
    type_token(&browser, TOKEN).await;
    browser.until("the stream", LIVE).await;
    browser
        .until("the tenant", "return document.getElementById('tenants').textContent.includes('acme')")
        .await;
    browser.eval("location.reload()").await;
    browser.until("the stream, without asking again", LIVE).await;
    let stored = browser.eval("return [localStorage.length, document.cookie]").await;
    assert_eq!(stored, serde_json::json!([0, ""]), "the token is kept for this tab alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_figures_are_shown_and_keys_are_not_looked_up() {
    let (spile, browser) = opened().await;
    look_up(&browser, "203.0.113.9").await;
    browser
        .until(
            "how to get one",
            "return document.querySelector('#buckets .bad')?.textContent.includes('SPILE_ADMIN_TOKEN')",
        )
        .await;
    let url = spile.admin_url("/dashboard/buckets?key=203.0.113.9");
    assert_eq!(Client::new().get(&url).await.expect("it answers").0, 403);
    go_to(&browser, "#/rules/login").await;
    browser.until("the rule", "return document.getElementById('edit') !== null").await;
    browser.eval("document.getElementById('edit').click()").await;
    browser
        .until(
            "why it is not edited",
            "return document.getElementById('problem').textContent.includes('SPILE_ADMIN_TOKEN')",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_appear_move_and_leave_no_error_in_the_console() {
    let (_spile, browser) = opened().await;
    for (what, script) in [
        ("decisions per second", "return +document.getElementById('t-allowed').textContent > 0"),
        ("denials per second", "return +document.getElementById('t-denied').textContent > 0"),
        ("a chart of two outcomes", "return document.querySelectorAll('#decisions polygon').length >= 2"),
        ("levels per limit", "return document.querySelectorAll('#levels .bar').length >= 4"),
        ("denied keys", "return document.querySelectorAll('#denied tbody tr').length >= 2"),
        ("spending keys", "return document.querySelectorAll('#spending tbody tr').length >= 2"),
        ("events", "return document.querySelectorAll('#events time').length >= 2"),
        ("store latency", "return document.getElementById('t-store').textContent.includes('µs')"),
        (
            "a chart of the latency",
            "return document.querySelector('path.warn')?.getAttribute('d').includes('L')",
        ),
        ("store health", "return document.getElementById('store').textContent.includes('store well')"),
    ] {
        browser.until(what, script).await;
    }
    let total = "return document.getElementById('t-degraded').textContent";
    let before = browser.eval(total).await;
    browser.until("the next second", &format!("{total} !== {before}")).await;
    let text = browser.eval("return document.body.innerText").await.to_string();
    assert!(!text.contains("203.0.113.9"), "a key is shown by name: {text}");
    for (page, what) in [
        ("#/plans", "return document.querySelectorAll('#plans tbody tr').length == 6"),
        ("#/tenants", "return document.getElementById('tenants')?.textContent.includes('acme')"),
        ("#/rules", "return document.querySelectorAll('#rules tbody tr').length == 3"),
        ("#/rules/login", "return document.querySelectorAll('#decisions polygon').length >= 1"),
        ("#/tenants/acme", "return document.querySelectorAll('#decisions polygon').length >= 1"),
    ] {
        go_to(&browser, page).await;
        browser.until(page, what).await;
    }
    let elsewhere = "return performance.getEntriesByType('resource').map(entry => entry.name)\
        .filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'))";
    assert_eq!(browser.eval(elsewhere).await, serde_json::json!([]), "the page asks its own server alone");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_a_page_of_its_own_whose_bucket_is_seen_to_fill() {
    let (spile, browser) = unlocked().await;
    let client = Client::new();
    let question = serde_json::json!({"ruleId": "login", "identity": "fresh", "cost": 10});
    let answer = client.post(&format!("http://{}/v1/check", spile.http), &question).await;
    assert_eq!(answer.expect("it answers").0, 200);
    look_up(&browser, "fresh").await;
    browser.until("six buckets", "return document.querySelectorAll('#buckets .bar').length === 6").await;
    assert_eq!(browser.eval("return location.hash").await, "#/keys/fresh");
    let level = "Math.min(...[...document.querySelectorAll('#buckets .bar')].map(b => +b.ariaValueNow))";
    let low = browser.eval(&format!("return {level}")).await;
    browser.until("it to fill", &format!("return {level} > {low} + 20")).await;
    look_up(&browser, "a\\u009fb").await;
    browser
        .until(
            "what is wrong",
            "return document.querySelector('#buckets .bad')?.textContent.includes('U+009F')",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_a_key_leads_to_its_page_which_says_why_it_is_a_hash() {
    let (_spile, browser) = unlocked().await;
    browser.until("a denied key", "return document.querySelector('#denied a') !== null").await;
    let hash = browser.eval("return document.querySelector('#denied a').textContent").await;
    browser.eval("document.querySelector('#denied a').click()").await;
    let words = format!(
        "const text = document.getElementById('main').innerText; return text.includes({hash}) && text.includes('show_keys')"
    );
    browser.until("its page", &words).await;
    browser.until("its denials", "return document.querySelector('.log time') !== null").await;
    // An operator who knows the key sees that it is this one.
    look_up(&browser, "203.0.113.9").await;
    browser
        .until(
            "the same hash",
            &format!("return document.querySelector('#buckets code')?.textContent === {hash}"),
        )
        .await;
}
