//! What it says when the store or the server is away.

use serde_json::json;
use spile_testkit::redis::RedisServer;

use super::{opened, opened_with};
use crate::support::Spile;

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_under_allow_cannot_be_overlooked() {
    let redis = RedisServer::start();
    let (_spile, browser) = opened_with(&format!("[store]\nurl = \"{}\"\n", redis.url())).await;
    browser
        .until("a store that is well", "return document.getElementById('store').className === 'pill good'")
        .await;
    drop(redis);
    let banner = "const banner = document.getElementById('outage'); return !banner.hidden && banner.innerText.match(\
        /The store does not answer\\. Limits are NOT enforced \\(policy allow\\)\\. [0-9,]+ decisions passed since [0-9]{2}:[0-9]{2}\\./) !== null";
    browser.until("the banner", banner).await;
    let title = browser.eval("return document.title").await;
    assert!(title.as_str().is_some_and(|title| title.contains("LIMITS OFF")), "{title}");
    let spoken = browser.eval("return document.getElementById('alarm').textContent").await;
    assert_eq!(spoken, "The store does not answer. Limits are NOT enforced (policy allow).");
    browser
        .until(
            "a chart of what passed",
            "return document.querySelector('[aria-labelledby=h-decided-without-the-store] polygon.no') !== null",
        )
        .await;
    for (width, height) in [(360, 780), (1440, 900)] {
        browser.eval("scrollTo(0, 0)").await;
        browser.resize(width, height).await;
        let drawn = "return [...document.querySelectorAll('.chart svg')].every(chart => +chart.getAttribute('viewBox').split(' ')[2] === chart.clientWidth)";
        browser.until("charts of that width", drawn).await;
        browser.picture(&format!("dashboard-outage-{width}")).await;
        browser.eval("scrollTo(0, 600)").await;
        let stays = "const { top, width } = document.getElementById('outage').getBoundingClientRect(); return [top, width - innerWidth]";
        assert_eq!(browser.eval(stays).await, json!([0, 0]), "at {width} px");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_under_deny_is_told_as_what_it_is() {
    let redis = RedisServer::start();
    let store = format!("[store]\nurl = \"{}\"\non_failure = \"deny\"\n", redis.url());
    let (_spile, browser) = opened_with(&store).await;
    drop(redis);
    let banner = "return document.getElementById('outage').innerText.match(\
        /Requests are refused \\(policy deny\\)\\. [0-9,]+ .*were refused since/) !== null";
    browser.until("the banner", banner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_green_while_the_server_is_away_and_all_is_back_with_it() {
    let (spile, browser) = opened().await;
    let (http, admin) = (spile.http, spile.admin);
    spile.stop().await;
    browser.until("the warning", "return !document.getElementById('away').hidden").await;
    let seen = "const style = getComputedStyle(document.body); return [document.querySelectorAll('.pill.good').length,\
        style.getPropertyValue('--ok') === style.getPropertyValue('--dim'), document.title.includes('Server away')]";
    assert_eq!(browser.eval(seen).await, json!([0, true, true]));
    let _again = Spile::start_at(http, admin).await;
    browser.until("the return", "return document.getElementById('away').hidden").await;
    assert_eq!(browser.eval(seen).await, json!([2, false, false]));
}
