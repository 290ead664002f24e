//! Its pages: by address, by range, by search, on every width, and for every reader.

use serde_json::json;

use super::{LIVE, go_to, look_up, opened, opened_with, tenants, unlocked};
use crate::support::{Browser, Client, Spile};

const OVERFLOW: &str = "return document.documentElement.scrollWidth - innerWidth";
const PAGES: [&str; 10] = [
    "#/",
    "#/tenants",
    "#/tenants/acme",
    "#/rules",
    "#/rules/login",
    "#/plans",
    "#/plans/gold",
    "#/keys",
    "#/keys/203.0.113.9",
    "#/routes",
];

/// Opens a page and waits until its figures are there.
async fn settled(browser: &Browser, page: &str) {
    go_to(browser, page).await;
    let loaded = format!("return location.hash === '{page}' && document.querySelector('#view h2') !== null");
    browser.until(page, &loaded).await;
    browser
        .until(
            "its figures",
            "return document.querySelector('#view table, #view .facts, #view .tiles, #view .empty') !== null",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_of_each_limit_are_shown() {
    let (_spile, browser) = opened().await;
    let row = "[...document.querySelectorAll('#permits tbody tr')].map(row => row.textContent).join()";
    browser.until("the permits", &format!("return /^exports3 ?3[1-9]/.test({row})")).await;
    let holder = "[...document.querySelectorAll('#holding tbody tr')].map(row => row.lastElementChild.textContent).join()";
    browser.until("who holds most", &format!("return {holder} === '3'")).await;
    browser.resize(1440, 1600).await;
    browser.picture("permits").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_a_phone_a_tablet_and_a_desk_in_light_and_dark() {
    let (_spile, browser) = unlocked().await;
    browser
        .until(
            "history",
            "return document.getElementById('uptime').textContent.match(/up (1[2-9]|[2-9][0-9]) s/) !== null",
        )
        .await;
    for (width, height) in [(360, 780), (768, 1024), (1440, 900)] {
        browser.resize(width, height).await;
        for page in PAGES {
            settled(&browser, page).await;
            assert!(browser.eval(OVERFLOW).await.as_i64() <= Some(0), "overflow at {width} px: {page}");
        }
        settled(&browser, "#/").await;
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await;
            let seen = browser.eval("return matchMedia('(prefers-color-scheme: dark)').matches").await;
            assert_eq!(seen, scheme == "dark");
            // The next second draws the charts at the new width.
            let total = "return document.getElementById('t-degraded').textContent";
            let before = browser.eval(total).await;
            browser.until("the next second", &format!("{total} !== {before}")).await;
            browser.picture(&format!("dashboard-{width}-{scheme}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_have_three_ranges_which_are_part_of_the_address() {
    let (_spile, browser) = opened().await;
    for (range, unit, steps) in
        [("24h", "per minute", 1440), ("1h", "per minute", 60), ("2min", "per second", 119)]
    {
        browser.eval(&format!("document.querySelector('[data-range=\"{range}\"]').click()")).await;
        let drawn = format!(
            "return document.getElementById('h-decisions').textContent.includes('{unit}') \
             && document.querySelector('#decisions polygon')?.getAttribute('points').split(' ').length === {}",
            2 * steps
        );
        browser.until(range, &drawn).await;
        assert_eq!(browser.eval("return location.hash").await, format!("#/?range={range}"));
    }
    browser.eval("document.querySelector('[data-range=\"24h\"]').click(); location.reload()").await;
    browser.until("the stream", LIVE).await;
    let pressed = "return document.querySelector('[data-range][aria-pressed=true]').textContent";
    assert_eq!(browser.eval(pressed).await, "24 h");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_tells_the_values_under_the_pointer_and_by_the_arrow_keys() {
    let (_spile, browser) = opened().await;
    browser.until("a chart", "return document.querySelector('#decisions polygon') !== null").await;
    let tip = "const tip = document.querySelector('#decisions .tip'); return !tip.hidden && tip.innerText";
    browser
        .eval(
            "const chart = document.querySelector('#decisions svg'), { left, top, width } = chart.getBoundingClientRect();\
             chart.dispatchEvent(new PointerEvent('pointermove', { clientX: left + width / 2, clientY: top + 50 }))",
        )
        .await;
    let pointed = browser.until("the values", tip).await;
    browser
        .eval(
            "const chart = document.querySelector('#decisions svg'); chart.focus();\
             for (const key of ['End', 'ArrowLeft']) chart.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }))",
        )
        .await;
    let stepped = browser.until("other values", tip).await;
    for values in [&pointed, &stepped] {
        let text = values.as_str().unwrap_or_default();
        assert!(text.contains("allowed") && text.contains("denied"), "{text}");
    }
    assert_ne!(pointed, stepped);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_tenants_are_shown_by_page_and_found_by_search() {
    let (_spile, browser) = opened_with(&tenants(500)).await;
    go_to(&browser, "#/tenants").await;
    let shown = |count: &str, first: &str| {
        format!(
            "return document.getElementById('found')?.textContent === '{count}' \
             && document.querySelector('#tenants tbody th')?.textContent === '{first}'"
        )
    };
    browser.until("the first page", &shown("501 tenants", "acme")).await;
    assert_eq!(browser.eval("return document.querySelectorAll('#tenants tbody tr').length").await, 50);
    assert_eq!(browser.eval("return document.getElementById('previous').disabled").await, true);
    browser.eval("document.getElementById('next').click()").await;
    browser.until("the second page", &shown("501 tenants", "tenant-049")).await;
    assert_eq!(browser.eval("return location.hash").await, "#/tenants?page=2");
    browser
        .eval(
            "const search = document.getElementById('search'); search.value = 'TENANT-49'; search.dispatchEvent(new Event('input'))",
        )
        .await;
    browser.until("those that are searched for", &shown("10 tenants", "tenant-490")).await;
    browser.eval("document.querySelector('#tenants a').click()").await;
    browser
        .until("its page", "return document.querySelector('#view h2').textContent === 'Tenant tenant-490'")
        .await;
    browser.until("its plan", "return document.querySelector('.facts')?.textContent.includes('gold')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_theme_is_kept() {
    let (_spile, browser) = opened().await;
    browser.eval("document.getElementById('theme').click(); document.getElementById('theme').click()").await;
    browser.eval("location.reload()").await;
    browser.until("the stream", LIVE).await;
    let theme =
        "return [document.documentElement.dataset.theme, document.getElementById('theme').textContent]";
    assert_eq!(browser.eval(theme).await, json!(["dark", "Theme: dark"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_html_are_shown_as_text() {
    let evil = "<img src=x onerror=window.hacked=1>";
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let more = format!("[[tenants]]\nid = \"{evil}\"\nplan = \"gold\"\n\n[observe]\nshow_keys = true\n");
    let spile = Spile::start_in(folder.path(), &more).await;
    let browser = Browser::open(&spile.admin_url("/dashboard")).await;
    let client = Client::new();
    for identity in [evil.to_owned(), format!("tenant:{evil}")] {
        for _ in 0..30 {
            let question = json!({"ruleId": "login", "identity": identity, "cost": 5});
            client.post(&format!("http://{}/v1/check", spile.http), &question).await.expect("it answers");
        }
    }
    let encoded = "%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E";
    for (page, place) in [
        ("#/".to_owned(), "#denied"),
        ("#/".to_owned(), "#events"),
        ("#/tenants".to_owned(), "#tenants"),
        ("#/keys".to_owned(), "#view"),
        (format!("#/tenants/{encoded}"), "#view h2"),
        (format!("#/rules/{encoded}"), "#view h2"),
        (format!("#/plans/{encoded}"), "#view h2"),
        (format!("#/keys/{encoded}"), "#view h2"),
        (format!("#/hashes/{encoded}"), "#view h2"),
    ] {
        go_to(&browser, &page).await;
        let shown = format!("return document.querySelector('{place}')?.textContent.includes('{evil}')");
        browser.until(&page, &shown).await;
        let made = browser.eval("return [document.images.length, window.hacked ?? null]").await;
        assert_eq!(made, json!([0, null]), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_has_a_name_that_can_be_read_aloud_and_a_place_for_the_keyboard() {
    let (_spile, browser) = unlocked().await;
    let nameless = "return [...document.querySelectorAll('input, select, button, a, svg[role=img], [role=meter], section, [role=region]')]\
        .filter(e => !(e.labels?.length || e.ariaLabel || e.getAttribute('aria-labelledby') || e.textContent.trim()))\
        .map(e => e.outerHTML)";
    let unscoped = "return [...document.querySelectorAll('th')].filter(e => !e.scope).map(e => e.outerHTML)";
    let broken = "return [...document.querySelectorAll('[aria-labelledby], [aria-describedby]')]\
        .flatMap(e => [e.getAttribute('aria-labelledby'), e.getAttribute('aria-describedby')]).filter(Boolean)\
        .filter(id => id !== 'h-editor' && !document.getElementById(id))";
    let doubled = "return [...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)";
    let out_of_reach = "return [...document.querySelectorAll('a, button, input, select')].filter(e => e.tabIndex < 0).map(e => e.outerHTML)";
    for page in PAGES {
        settled(&browser, page).await;
        for check in [nameless, unscoped, broken, doubled, out_of_reach] {
            assert_eq!(browser.eval(check).await, json!([]), "{page}: {check}");
        }
        let landmarks = "return ['header', 'nav', 'main', 'h1', '#view h2'].filter(part => !document.querySelector(part))";
        assert_eq!(browser.eval(landmarks).await, json!([]), "{page}");
    }
    look_up(&browser, "fresh").await;
    let focused = "return document.activeElement.tagName === 'H2' && document.activeElement.textContent";
    assert_eq!(browser.until("the heading of the new page", focused).await, "Key fresh");
}

/// Colours of text and of their grounds, as (what, text, ground).
const CONTRASTS: &str = "
    const probe = document.body.appendChild(document.createElement('i'));
    const rgb = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number); };
    const light = colour => { const [r, g, b] = colour.map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    const ratio = (a, b) => { const [x, y] = [light(rgb(a)), light(rgb(b))].sort((m, n) => n - m); return (x + .05) / (y + .05); };
    const low = [];
    for (const text of ['ink', 'dim', 'ok', 'no', 'shadow', 'warn']) for (const ground of ['card', 'bg'])
      if (ratio(text, ground) < 4.5) low.push([text, ground, ratio(text, ground)]);
    probe.remove();
    return low;";

#[tokio::test(flavor = "multi_thread")]
async fn text_has_the_contrast_that_reading_takes() {
    let (_spile, browser) = opened().await;
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        assert_eq!(browser.eval(CONTRASTS).await, json!([]), "{scheme}");
    }
}
