//! Changing plans, rules and tenants.

use http::Method;
use serde_json::{Value, json};

use super::{go_to, unlocked};
use crate::support::{Browser, Client, Spile, TOKEN};

/// Opens the editor of an entry.
async fn edit(browser: &Browser, page: &str) {
    go_to(browser, page).await;
    browser
        .until(
            page,
            &format!("return location.hash === '{page}' && document.getElementById('edit') !== null"),
        )
        .await;
    browser.eval("document.getElementById('edit').click()").await;
    browser.until("the editor", "return document.getElementById('editor').open").await;
}

/// Replaces text in the editor, and goes on to what would change.
async fn replace(browser: &Browser, text: &str, by: &str) {
    let script = format!(
        "const area = document.getElementById('document'); area.value = area.value.replace('{text}', '{by}');\
         area.dispatchEvent(new Event('input')); document.getElementById('review').click()"
    );
    browser.eval(&script).await;
}

async fn press(browser: &Browser, button: &str) {
    browser.until(button, &format!("return document.getElementById('{button}') !== null")).await;
    browser.eval(&format!("document.getElementById('{button}').click()")).await;
}

async fn until_said(browser: &Browser, words: &str) {
    let said = format!("return document.getElementById('editor-problem')?.textContent.includes('{words}')");
    browser.until(words, &said).await;
}

async fn until_closed(browser: &Browser) {
    browser.until("the end of the dialog", "return !document.getElementById('editor').open").await;
}

async fn entry(spile: &Spile, path: &str) -> (u16, Value) {
    let (status, text) =
        Client::new().with_token(TOKEN).get(&spile.admin_url(path)).await.expect("it answers");
    (status.as_u16(), serde_json::from_str(&text).expect("it is JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_changed_after_its_changes_were_shown_and_confirmed() {
    let (spile, browser) = unlocked().await;
    edit(&browser, "#/plans/free").await;
    replace(&browser, "\"capacity\": 10", "\"capacity\": 12").await;
    let changes = browser
        .eval("return [...document.querySelectorAll('.changes .added, .changes .removed')].map(line => line.textContent.trim())")
        .await;
    let lines = changes.to_string();
    assert!(lines.contains("− ") && lines.contains("10") && lines.contains("12"), "{lines}");
    assert_eq!(changes.as_array().map(Vec::len), Some(2), "{lines}");
    assert_eq!(entry(&spile, "/admin/v1/plans/free").await.1["source"], "file", "nothing is saved yet");
    press(&browser, "save").await;
    until_closed(&browser).await;
    let notice = browser.eval("return document.getElementById('notice').textContent").await;
    assert_eq!(notice, "The plan free is saved.");
    browser.until("the new limit", "return document.getElementById('view').textContent.includes('12')").await;
    assert_eq!(entry(&spile, "/admin/v1/plans/free").await.1["source"], "registry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_made_elsewhere_meanwhile_is_not_overwritten() {
    let (spile, browser) = unlocked().await;
    edit(&browser, "#/tenants/acme").await;
    let elsewhere = json!({"plan": "pro"}).to_string();
    let url = spile.admin_url("/admin/v1/tenants/acme");
    let client = Client::new().with_token(TOKEN);
    let (status, _) = client.send(Method::PUT, &url, elsewhere).await.expect("it answers");
    assert_eq!(status, 200);
    replace(&browser, "gold", "free").await;
    press(&browser, "save").await;
    until_said(&browser, "has been changed elsewhere since you opened it. Nothing was saved.").await;
    assert_eq!(entry(&spile, "/admin/v1/tenants/acme").await.1["plan"], "pro");
    press(&browser, "compare").await;
    browser
        .until(
            "what it is by now",
            "return document.querySelector('.changes .removed')?.textContent.includes('pro')",
        )
        .await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    let (_, tenant) = entry(&spile, "/admin/v1/tenants/acme").await;
    assert_eq!((&tenant["plan"], &tenant["apiKeyCount"]), (&json!("free"), &json!(1)), "its API key stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_told_and_the_text_is_kept() {
    let (_spile, browser) = unlocked().await;
    edit(&browser, "#/rules/login").await;
    replace(&browser, "\"free\"", "\"fre\"").await;
    press(&browser, "save").await;
    until_said(&browser, "no plan is called `fre`").await;
    assert_eq!(
        browser.eval("return document.getElementById('document').value.includes('\"fre\"')").await,
        true
    );
    replace(&browser, "{", "").await;
    until_said(&browser, "This is not JSON").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_made_and_removed_again() {
    let (spile, browser) = unlocked().await;
    go_to(&browser, "#/tenants").await;
    browser.until("the list", "return document.querySelector('.headline button') !== null").await;
    browser.eval("document.querySelector('.headline button').click()").await;
    replace(&browser, "\"id\": \"\"", "\"id\": \"beta\"").await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    browser
        .until("it in the list", "return document.getElementById('tenants').textContent.includes('beta')")
        .await;
    edit(&browser, "#/tenants/beta").await;
    press(&browser, "remove").await;
    press(&browser, "confirm-removal").await;
    until_closed(&browser).await;
    assert_eq!(entry(&spile, "/admin/v1/tenants/beta").await.0, 404);
}
