//! What routes do on the way, as the file says it.

use jsonwebtoken::{EncodingKey, Header};
use serde_json::json;
use spile_core::Clock;
use spile_testkit::otlp::{Collector, hex, named};

use crate::support::{Spile, echo};

#[tokio::test]
async fn hosts_upstreams_prefixes_and_headers_are_as_the_file_says() {
    let (one, two) = (echo("one").await, echo("two").await);
    let spile = Spile::start(&format!(
        r#"
        [[routes]]
        path = "/api/*/scores"
        hosts = ["api.example.com"]
        upstream = ["http://{one}", "http://{two}"]
        rewrite_prefix = "/v2"
        request_headers = {{ set = {{ "x-from" = "spile" }}, add = {{ "x-tag" = "edge" }}, remove = ["cookie"] }}
        response_headers = {{ set = {{ "x-frame-options" = "DENY" }}, remove = ["server"] }}

        [[routes]]
        path = "/"
        upstream = "http://{two}"
        "#
    ))
    .await;
    let fields = [("host", "api.example.com"), ("cookie", "a=b"), ("x-tag", "mine")];
    let mut upstreams = Vec::new();
    for _ in 0..2 {
        let answer = spile.get("/api/eu/scores/7", &fields).await;
        let told = answer.json();
        upstreams.push(told["upstream"].as_str().expect("a name").to_owned());
        assert_eq!(told["path"], "/v2/7");
        let headers = &told["headers"];
        assert_eq!((&headers["x-from"], &headers["cookie"]), (&json!("spile"), &json!(null)));
        assert_eq!(headers["x-tag"], "edge", "the last of both lines");
        assert_eq!((answer.header("x-frame-options"), answer.header("server")), (Some("DENY"), None));
    }
    upstreams.sort();
    assert_eq!(upstreams, ["one", "two"]);
    let elsewhere = spile.get("/api/eu/scores/7", &[]).await;
    assert_eq!((&elsewhere.json()["upstream"], elsewhere.header("server")), (&json!("two"), Some("echo")));
}

#[tokio::test]
async fn an_upstream_on_a_socket_goes_by_its_path_in_metrics() {
    let socket = "unix:///run/nobody-listens.sock";
    let spile = Spile::start(&format!("[[routes]]\npath = \"/\"\nupstream = \"{socket}\"\n")).await;
    assert_eq!(spile.get("/", &[]).await.status, 502);
    let metrics = spile.metrics().await;
    let up = "gateway_upstream_up{route=\"/\",upstream=\"unix:/run/nobody-listens.sock\"}";
    assert!(metrics.contains(up), "{metrics}");
}

#[tokio::test]
async fn a_signed_token_makes_a_principal_a_tenant_and_a_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = "a shared secret of 32 bytes or more";
    std::fs::write(folder.path().join("secret"), secret).expect("a file");
    let upstream = echo("one").await;
    let spile = Spile::start(&format!(
        r#"
        [gateway.jwt]
        key_file = "{}"
        keys = "secret"
        issuer = "https://issuer.test"
        audience = ["scores", "games"]
        leeway = "5s"
        tenant_claim = "org"
        plan_claim = "tier"

        [[rules]]
        id = "default"
        key = ["principal"]
        plans = "tenant"
        anonymous_plan = "free"

        [[routes]]
        path = "/"
        upstream = "http://{upstream}"
        require_api_key = true
        "#,
        folder.path().join("secret").display(),
    ))
    .await;
    let now = spile.clock.now().get() / 1_000_000;
    let token = |subject: &str, audience: &str| {
        let claims = json!({
            "sub": subject, "iss": "https://issuer.test", "aud": audience, "exp": now + 10, "org": "acme", "tier": "pro",
        });
        let key = EncodingKey::from_secret(secret.as_bytes());
        format!("Bearer {}", jsonwebtoken::encode(&Header::default(), &claims, &key).expect("a token"))
    };
    let ada = token("ada", "games");
    let answer = spile.get("/", &[("authorization", &ada)]).await;
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("100")));
    assert_eq!(answer.json()["headers"]["x-tenant-id"], "acme");
    let again = spile.get("/", &[("authorization", &ada)]).await;
    assert_eq!(again.header("x-ratelimit-remaining"), Some("98"));
    let bea = spile.get("/", &[("authorization", &token("bea", "scores"))]).await;
    assert_eq!(bea.header("x-ratelimit-remaining"), Some("99"), "each principal has a bucket of their own");
    assert_eq!(spile.get("/", &[("authorization", &token("ada", "others"))]).await.status, 401);
    assert_eq!(spile.get("/", &[]).await.status, 401);
}

#[tokio::test]
async fn a_collector_that_the_file_names_gets_the_whole_trace() {
    let mut collector = Collector::start().await;
    let upstream = echo("one").await;
    let endpoint = &collector.endpoint;
    let spile = Spile::start(&format!(
        "[observe]\notlp = \"{endpoint}\"\n[[routes]]\npath = \"/\"\nupstream = \"http://{upstream}\"\n"
    ))
    .await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let told = spile.get("/", &[("traceparent", parent)]).await.json();
    let spans = collector.spans(4).await;
    let (request, proxy) = (named(&spans, "GET /*"), named(&spans, "GET"));
    let (decision, store) = (named(&spans, "decision"), named(&spans, "store spend"));
    assert_eq!(hex(&request.parent_span_id), "00f067aa0ba902b7");
    assert_eq!((&decision.parent_span_id, &proxy.parent_span_id), (&request.span_id, &request.span_id));
    assert_eq!(store.parent_span_id, decision.span_id);
    let passed_on = told["headers"]["traceparent"].as_str().expect("a trace");
    assert!(passed_on.contains(&hex(&proxy.span_id)), "{passed_on}");
}
