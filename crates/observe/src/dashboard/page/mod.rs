//! The page: HTML, style and script in separate files, served as one document that loads nothing else.

use std::sync::LazyLock;

use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// One module, concatenated from several files. A file may use names of a later one, except while the module is loaded.
const SCRIPT: &str = concat!(
    include_str!("script/elements.js"),
    include_str!("script/server.js"),
    include_str!("script/status.js"),
    include_str!("script/chart.js"),
    include_str!("script/history.js"),
    include_str!("script/events.js"),
    include_str!("script/overview.js"),
    include_str!("script/registry.js"),
    include_str!("script/explanation.js"),
    include_str!("script/keys.js"),
    include_str!("script/routes.js"),
    include_str!("script/entry_form.js"),
    include_str!("script/editor.js"),
    include_str!("script/main.js"),
);

static DOCUMENT: LazyLock<String> =
    LazyLock::new(|| HTML.replacen("{style}", STYLE, 1).replacen("{script}", SCRIPT, 1));

/// The page runs its own script and style and no other, loads nothing, and connects only to its own server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let (script, style) = (source_hash(SCRIPT), source_hash(STYLE));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src 'self'; base-uri \
         'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The live dashboard.
#[utoipa::path(
    get,
    path = "/dashboard",
    tag = "dashboard",
    operation_id = "dashboard",
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"))
)]
pub(super) async fn show() -> impl IntoResponse {
    let headers: [(HeaderName, &str); 4] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (headers, DOCUMENT.as_str())
}

/// The hash by which a policy allows an inline script or style.
fn source_hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_refers_to_no_other_site_and_writes_no_html() {
        let document = DOCUMENT.replace("http://www.w3.org/2000/svg", "");
        for forbidden in [
            "http://",
            "https://",
            "src=",
            "@import",
            "url(",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
        ] {
            assert!(!document.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn the_policy_allows_no_inline_code_but_the_page_s_own() {
        assert!(!POLICY.contains("unsafe"), "{}", *POLICY);
        let is_listener = |rest: &str| rest.trim_start_matches(char::is_alphabetic).starts_with('=');
        assert!(
            !HTML.contains("style=") && !HTML.split(" on").skip(1).any(is_listener),
            "no hash covers attributes"
        );
    }
}
