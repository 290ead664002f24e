//! Why a key is limited, on its page.

use http::Method;
use serde_json::json;

use super::{go_to, opened, unlocked};
use crate::support::{Browser, Client, Spile, TOKEN};

/// Spends what the key has under the rule, and is denied.
async fn deny(spile: &Spile, rule: &str, identity: &str) {
    let question = json!({"ruleId": rule, "identity": identity, "cost": 10});
    for _ in 0..3 {
        Client::new().post(&format!("http://{}/v1/check", spile.http), &question).await.expect("it answers");
    }
}

async fn reads(browser: &Browser, place: &str, words: &str) {
    let script = format!("return document.querySelector('{place}')?.textContent.includes('{words}')");
    browser.until(words, &script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_page_says_which_rule_denied_it_who_pays_and_what_to_change() {
    let (spile, browser) = unlocked().await;
    deny(&spile, "login", "ip:198.51.100.7").await;
    go_to(&browser, "#/keys/ip%3A198.51.100.7").await;
    reads(&browser, "#explained", "login, which denied the key last").await;
    let link = browser.eval("return document.querySelector('#explained a').getAttribute('href')").await;
    assert_eq!(link, "#/rules/login");
    reads(&browser, "#payers .level", "this one decides").await;
    assert_eq!(browser.eval("return document.querySelectorAll('#payers [role=meter]').length").await, 1);
    reads(&browser, "#denials tbody", "login").await;
    reads(&browser, "#advice", "To allow more, raise capacity").await;
    let code = browser.eval("return document.querySelector('#advice code') !== null").await;
    assert_eq!(code, true, "names are set apart from the sentence");
    let why = "return document.getElementById('view').innerText.includes('show_keys')";
    browser.until("why keys are hashes", why).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_described_is_part_of_the_address() {
    let (spile, browser) = unlocked().await;
    go_to(&browser, "#/keys/tenant%3Aacme").await;
    reads(&browser, "#outcome", "would").await;
    browser
        .eval(
            "const form = document.querySelector('#request form'); form.path.value = '/x'; form.cost.value = '1000000';\
             form.querySelector('button').click()",
        )
        .await;
    reads(&browser, "#outcome", "It never passes").await;
    let hash = "#/keys/tenant%3Aacme?path=%2Fx&method=GET&cost=1000000";
    assert_eq!(browser.eval("return location.hash").await, hash);
    // Another operator opens the same address.
    let other = Browser::open(&spile.admin_url(&format!("/dashboard{hash}"))).await;
    other.until("the gate", "return !document.getElementById('gate').hidden").await;
    assert_eq!(other.eval("return document.getElementById('outcome')?.textContent || ''").await, "");
    super::type_token(&other, TOKEN).await;
    reads(&other, "#outcome", "It never passes").await;
    assert_eq!(
        other.eval("return [document.getElementById('request').open, document.querySelector('[name=path]').value]").await,
        json!([true, "/x"])
    );
    browser.eval("const form = document.querySelector('#request form'); form.path.value = 'x'; form.querySelector('button').click()").await;
    reads(&browser, "#why-problem", "is not the path of a request").await;
    assert_eq!(browser.eval("return document.getElementById('advice').children.length").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_fits_a_phone_a_tablet_and_a_desk() {
    let (spile, browser) = unlocked().await;
    // A plan that is slow enough to be empty in each picture.
    for (path, entry) in [
        ("plans/reports", json!({"capacity": 10, "refill": "10/h"})),
        ("rules/reports", json!({"match": {"path": "/reports"}, "key": ["tenant"], "plans": ["reports"]})),
    ] {
        let url = spile.admin_url(&format!("/admin/v1/{path}"));
        let put = Client::new().with_token(TOKEN).send(Method::PUT, &url, entry.to_string()).await;
        assert_eq!(put.expect("it answers").0, 201);
    }
    deny(&spile, "reports", "tenant:acme").await;
    go_to(&browser, "#/keys/tenant%3Aacme?path=%2Freports").await;
    reads(&browser, "#outcome", "would be denied now").await;
    reads(&browser, "#denials tbody", "reports").await;
    browser.until("its events", "return document.querySelector('.log time') !== null").await;
    for (width, height) in [(360, 780), (768, 1024), (1440, 900)] {
        browser.resize(width, height).await;
        let overflow = browser.eval("return document.documentElement.scrollWidth - innerWidth").await;
        assert!(overflow.as_i64() <= Some(0), "overflow at {width} px: {overflow}");
        browser.eval("scrollTo(0, 0)").await;
        browser.picture(&format!("dashboard-key-{width}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_it_says_how_to_get_one() {
    let (_spile, browser) = opened().await;
    go_to(&browser, "#/keys/tenant%3Aacme").await;
    reads(&browser, "#why-problem", "SPILE_ADMIN_TOKEN").await;
}
