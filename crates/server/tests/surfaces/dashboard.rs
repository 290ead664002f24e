//! The dashboard in a real browser.

use crate::support::{Browser, Client, Spile, TOKEN};

const OVERFLOW: &str = "return document.documentElement.scrollWidth - innerWidth";

const LIVE: &str = "return document.getElementById('link').textContent === 'live'";

/// The dashboard of a server without a token, as it is seen on its own machine.
async fn opened() -> (Spile, Browser) {
    let spile = Spile::start().await.keep_busy();
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

async fn look_at(browser: &Browser, key: &str) {
    let script = format!(
        "document.getElementById('key').value = '{key}'; document.querySelector('#inspect button').click()"
    );
    browser.eval(&script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_nothing_is_shown_to_whoever_does_not_know_it() {
    let spile = Spile::start_guarded().await.keep_busy();
    let client = Client::new();
    for path in ["events", "snapshot", "house", "day", "minutes", "minutes.csv", "buckets?key=a"] {
        let url = spile.admin_url(&format!("/dashboard/{path}"));
        let (status, text) = client.get(&url).await.expect("it answers");
        assert_eq!(status, 401, "{path}: {text}");
        let (status, _) = client.with_token("wrong").get(&url).await.expect("it answers");
        assert_eq!(status, 401, "{path}");
    }
    let browser = Browser::open(&spile.admin_url("/dashboard")).await;
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
    assert!(!shown.contains("acme") && !shown.contains("per second"), "{shown}");
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
    look_at(&browser, "203.0.113.9").await;
    browser
        .until(
            "how to get one",
            "return document.querySelector('#buckets .bad')?.textContent.includes('SPILE_ADMIN_TOKEN')",
        )
        .await;
    let url = spile.admin_url("/dashboard/buckets?key=203.0.113.9");
    assert_eq!(Client::new().get(&url).await.expect("it answers").0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_appear_move_and_leave_no_error_in_the_console() {
    let (_spile, browser) = opened().await;
    for (what, script) in [
        ("decisions per second", "return +document.getElementById('t-allowed').textContent > 0"),
        ("denials per second", "return +document.getElementById('t-denied').textContent > 0"),
        ("a chart of two outcomes", "return document.querySelectorAll('#chart polygon').length >= 2"),
        ("levels per limit", "return document.querySelectorAll('#levels .bar').length >= 4"),
        ("denied keys", "return document.querySelectorAll('#denied tbody tr').length >= 2"),
        ("spending keys", "return document.querySelectorAll('#spending tbody tr').length >= 2"),
        ("events", "return document.querySelectorAll('#events time').length >= 2"),
        ("plans", "return document.querySelectorAll('#plans tbody tr').length == 5"),
        ("the tenant", "return document.getElementById('tenants').textContent.includes('acme')"),
        ("the day", "return document.getElementById('day').textContent.includes('login')"),
        ("store latency", "return document.getElementById('t-store').textContent.includes('µs')"),
        ("store health", "return document.getElementById('store').textContent.includes('store well')"),
    ] {
        browser.until(what, script).await;
    }
    let total = "return document.getElementById('t-degraded').textContent";
    let before = browser.eval(total).await;
    browser.until("the next second", &format!("{total} !== {before}")).await;
    let text = browser.eval("return document.body.innerText").await.to_string();
    assert!(!text.contains("203.0.113.9"), "a key is shown by name: {text}");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_looked_up_and_its_bucket_is_seen_to_fill() {
    let (spile, browser) = unlocked().await;
    let client = Client::new();
    let question = serde_json::json!({"ruleId": "login", "identity": "fresh", "cost": 10});
    let answer = client.post(&format!("http://{}/v1/check", spile.http), &question).await;
    assert_eq!(answer.expect("it answers").0, 200);
    look_at(&browser, "fresh").await;
    browser.until("five buckets", "return document.querySelectorAll('#buckets .bar').length === 5").await;
    let level = "Math.min(...[...document.querySelectorAll('#buckets .bar')].map(b => +b.ariaValueNow))";
    let low = browser.eval(&format!("return {level}")).await;
    browser.until("it to fill", &format!("return {level} > {low} + 20")).await;
    look_at(&browser, "a\\u009fb").await;
    browser
        .until(
            "what is wrong",
            "return document.querySelector('#buckets .bad')?.textContent.includes('U+009F')",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_fits_a_phone_and_a_desk_in_light_and_dark() {
    let (_spile, browser) = unlocked().await;
    look_at(&browser, "203.0.113.9").await;
    browser.until("history", "return document.querySelectorAll('#chart polygon').length >= 2 && document.getElementById('uptime').textContent.match(/up (1[2-9]|[2-9][0-9]) s/) !== null").await;
    for (width, height) in [(360, 780), (1440, 900)] {
        for scheme in ["light", "dark"] {
            browser.resize(width, height).await;
            browser.prefer(scheme).await;
            let seen = browser.eval("return matchMedia('(prefers-color-scheme: dark)').matches").await;
            assert_eq!(seen, scheme == "dark");
            // The next second draws the chart at the new width.
            let total = "return document.getElementById('t-degraded').textContent";
            let before = browser.eval(total).await;
            browser.until("the next second", &format!("{total} !== {before}")).await;
            assert!(browser.eval(OVERFLOW).await.as_i64() <= Some(0), "overflow at {width} px, {scheme}");
            browser.picture(&format!("dashboard-{width}-{scheme}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_when_the_server_is_away_and_when_it_is_back() {
    let (spile, browser) = opened().await;
    let (http, admin) = (spile.http, spile.admin);
    spile.stop().await;
    browser.until("the warning", "return !document.getElementById('away').hidden").await;
    let _again = Spile::start_at(http, admin).await;
    browser.until("the return", "return document.getElementById('away').hidden").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_has_a_name_that_can_be_read_aloud_and_a_place_for_the_keyboard() {
    let (_spile, browser) = opened().await;
    let nameless = "return [...document.querySelectorAll('input, select, button, svg[role=img], [role=meter], section')]\
        .filter(e => !(e.labels?.length || e.ariaLabel || e.getAttribute('aria-labelledby') || e.textContent.trim()))\
        .map(e => e.outerHTML)";
    assert_eq!(browser.eval(nameless).await, serde_json::json!([]));
    let hidden_from_keys = "return [...document.querySelectorAll('a, button, input, select')].filter(e => e.tabIndex < 0).length";
    assert_eq!(browser.eval(hidden_from_keys).await, 0);
}
