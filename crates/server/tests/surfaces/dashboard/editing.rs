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

/// Types into a field of the form, or chooses in it.
async fn fill(browser: &Browser, field: &str, value: &str) {
    let script = format!(
        "const field = document.getElementById('field-{field}'); field.value = '{value}';\
         field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input'))"
    );
    browser.eval(&script).await;
}

/// Makes a new entry of the kind whose list is open.
async fn make(browser: &Browser, page: &str) {
    go_to(browser, page).await;
    let list =
        format!("return location.hash === '{page}' && document.querySelector('.headline button') !== null");
    browser.until("the list", &list).await;
    browser.eval("document.querySelector('.headline button').click()").await;
    browser.until("the editor", "return document.getElementById('editor').open").await;
}

async fn document(browser: &Browser) -> Value {
    browser.eval("return JSON.parse(document.getElementById('document').value)").await
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
    browser.until("the editor", "return document.getElementById('editor').open").await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_two_limits_is_made_by_its_fields() {
    let (spile, browser) = unlocked().await;
    make(&browser, "#/plans").await;
    fill(&browser, "name", "silver").await;
    fill(&browser, "capacity", "30").await;
    fill(&browser, "refill-tokens", "3").await;
    fill(&browser, "refill-period", "10s").await;
    assert_eq!(document(&browser).await, json!({"name": "silver", "capacity": 30, "refill": "3/10s"}));
    let area = "const area = document.getElementById('document'); area.value = area.value.replace('30,', '30, \"lease\": \"100ms\",'); area.dispatchEvent(new Event('input'))";
    browser.eval(area).await;
    press(&browser, "add-limit").await;
    let first = json!({"name": "first", "capacity": 30, "lease": "100ms", "refill": "3/10s"});
    assert_eq!(document(&browser).await["limits"][0], first, "what else the limit has goes with it");
    let focused = browser.eval("return document.activeElement.id").await;
    assert_eq!(focused, "field-limits-1-name", "the keyboard goes on in the new limit");
    fill(&browser, "limits-0-name", "burst").await;
    fill(&browser, "limits-1-name", "daily").await;
    fill(&browser, "limits-1-capacity", "").await;
    fill(&browser, "limits-1-refill-tokens", "5000").await;
    fill(&browser, "limits-1-refill-period", "day").await;
    browser.eval("document.getElementById('entry').requestSubmit()").await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    let (_, plan) = entry(&spile, "/admin/v1/plans/silver").await;
    let limits = json!([
        {"name": "burst", "capacity": 30, "refill": "3/10s", "lease": "100ms"},
        {"name": "daily", "capacity": 5000, "refill": "5000/day"},
    ]);
    assert_eq!((&plan["limits"], &plan["source"]), (&limits, &json!("registry")), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_made_and_changed_by_its_fields_and_keeps_its_other_members() {
    let (spile, browser) = unlocked().await;
    make(&browser, "#/plans").await;
    fill(&browser, "name", "billed").await;
    fill(&browser, "shape", "quota").await;
    assert_eq!(document(&browser).await, json!({"name": "billed", "quota": 100_000, "per": "month"}));
    for (field, value) in [("quota", "500"), ("zone", "Europe/Berlin"), ("anchor", "15"), ("debt", "40")] {
        fill(&browser, field, value).await;
    }
    browser.eval("document.getElementById('entry').requestSubmit()").await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    edit(&browser, "#/plans/billed").await;
    fill(&browser, "quota", "600").await;
    browser.eval("document.getElementById('entry').requestSubmit()").await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    let (_, plan) = entry(&spile, "/admin/v1/plans/billed").await;
    let expected = json!({"name": "billed", "quota": 600, "per": "month", "zone": "Europe/Berlin", "anchor": 15,
                          "debt": 40, "source": "registry"});
    assert_eq!(plan, expected);
    let shown = "return document.querySelector('main').textContent.includes('600 per month in Europe/Berlin from 15')";
    browser.until("the quota on the page of the plan", shown).await;
    edit(&browser, "#/plans/billed").await;
    fill(&browser, "shape", "rate").await;
    let rate = json!({"name": "billed", "capacity": 100, "refill": "10/s", "debt": 40});
    assert_eq!(document(&browser).await, rate, "no member of the quota is left");
    browser.eval("document.getElementById('editor').close()").await;
    make(&browser, "#/tenants").await;
    fill(&browser, "id", "beta").await;
    fill(&browser, "plan", "billed").await;
    browser.eval("document.getElementById('entry').requestSubmit()").await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    go_to(&browser, "#/tenants/beta").await;
    let used = "return document.getElementById('usage')?.textContent.includes('billed0 of 600 (0 %)')";
    browser.until("what the tenant has used", used).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_made_by_its_fields_and_what_is_wrong_stands_at_the_field() {
    let (spile, browser) = unlocked().await;
    make(&browser, "#/rules").await;
    for (field, value) in [
        ("id", "upload"),
        ("match-path", "upload"),
        ("match-methods", "POST, PUT"),
        ("key", "tenant, shoe-size"),
        ("plans", "gold, silber"),
        ("cost", "5"),
        ("mode", "enforce"),
        ("onFailure", "deny"),
    ] {
        fill(&browser, field, value).await;
    }
    press(&browser, "review").await;
    press(&browser, "save").await;
    until_said(&browser, "Nothing was saved.").await;
    let wrong = "return [...document.querySelectorAll('#editor [aria-invalid=true]')].map(field => [field.id,\
        field.getAttribute('aria-describedby').split(' ').map(id => document.getElementById(id)).find(hint => hint.className === 'bad').textContent])";
    let wrong = browser.eval(wrong).await;
    for (at, (field, words)) in
        [("field-match-path", "starts with"), ("field-key", "shoe-size"), ("field-plans", "silber")]
            .into_iter()
            .enumerate()
    {
        assert_eq!(wrong[at][0], field, "{wrong}");
        assert!(wrong[at][1].as_str().is_some_and(|text| text.contains(words)), "{wrong}");
    }
    assert_eq!(browser.eval("return document.activeElement.id").await, "field-match-path");
    fill(&browser, "match-path", "/upload").await;
    fill(&browser, "key", "tenant, ip").await;
    fill(&browser, "plans", "tenant").await;
    fill(&browser, "anonymousPlan", "free").await;
    press(&browser, "review").await;
    press(&browser, "save").await;
    until_closed(&browser).await;
    let (_, rule) = entry(&spile, "/admin/v1/rules/upload").await;
    assert_eq!((&rule["plans"], &rule["anonymousPlan"]), (&json!("tenant"), &json!("free")), "{rule}");
    assert_eq!(rule["match"], json!({"path": "/upload", "methods": ["POST", "PUT"]}), "{rule}");
    assert_eq!(
        (&rule["cost"], &rule["onFailure"], &rule["key"]),
        (&json!(5), &json!("deny"), &json!(["tenant", "ip"]))
    );
    edit(&browser, "#/rules/upload").await;
    for field in ["match-path", "match-methods"] {
        fill(&browser, field, "").await;
    }
    assert_eq!(document(&browser).await.get("match"), None, "an empty match is left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fields_and_the_text_are_the_same_entry() {
    let (_spile, browser) = unlocked().await;
    edit(&browser, "#/tenants/acme").await;
    let plan = "return document.getElementById('field-plan')?.value ?? null";
    assert_eq!(browser.eval(plan).await, "gold");
    assert_eq!(browser.eval("return document.getElementById('field-id').readOnly").await, true);
    let write = |text: &str| {
        format!(
            "const area = document.getElementById('document'); area.value = '{text}'; area.dispatchEvent(new Event('input'))"
        )
    };
    browser.eval(&write("{\"id\":\"acme\",\"plan\":\"pro\",\"limits\":{}}")).await;
    assert_eq!(browser.eval(plan).await, "pro");
    fill(&browser, "plan", "free").await;
    assert_eq!(
        document(&browser).await,
        json!({"id": "acme", "plan": "free", "limits": {}}),
        "the rest stays"
    );
    browser.eval(&write("{")).await;
    assert_eq!(browser.eval(plan).await, Value::Null, "what cannot be read has no fields");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_fits_a_phone_and_every_field_has_a_label() {
    let (_spile, browser) = unlocked().await;
    for page in ["#/plans/gold", "#/tenants/acme", "#/rules/login"] {
        edit(&browser, page).await;
        let nameless = "return [...document.querySelectorAll('#editor input, #editor select, #editor textarea')]\
            .filter(field => !field.labels.length).map(field => field.outerHTML)";
        assert_eq!(browser.eval(nameless).await, json!([]), "{page}");
        let doubled = "return [...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)";
        assert_eq!(browser.eval(doubled).await, json!([]), "{page}");
        for (width, height) in [(360, 780), (768, 1024), (1440, 900)] {
            browser.resize(width, height).await;
            let wide = "const dialog = document.getElementById('editor'); return dialog.scrollWidth - dialog.clientWidth";
            assert_eq!(browser.eval(wide).await, 0, "{page} at {width} px");
            if page == "#/rules/login" {
                browser.picture(&format!("dashboard-edit-{width}")).await;
            }
        }
        browser.eval("document.getElementById('editor').close()").await;
    }
}
