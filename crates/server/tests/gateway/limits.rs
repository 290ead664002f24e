//! What requests through the gateway are charged: by plan, by tenant, by route, by what they came to.

use std::time::Duration;

use http::Method;

use crate::support::{Spile, echo};

const PLANS: &str = r#"
    [plans.free]
    capacity = 10
    refill = "1/s"

    [plans.pro]
    capacity = 100
    refill = "50/s"

    [plans.few]
    capacity = 3
    refill = "1/min"

    [[rules]]
    id = "default"
    key = ["tenant", "ip"]
    plans = "tenant"
    anonymous_plan = "free"

    [[tenants]]
    id = "acme"
    plan = "pro"
    api_keys = ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]

    [[tenants]]
    id = "bolt"
    plan = "free"
    api_keys = ["sha256:81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9"]
"#;
const ACME: (&str, &str) = ("x-api-key", "test");
const BOLT: (&str, &str) = ("x-api-key", "bob");

async fn with_routes(routes: &str) -> Spile {
    let upstream = echo("one").await;
    Spile::start(&format!("{PLANS}{}", routes.replace("UPSTREAM", &format!("http://{upstream}")))).await
}

#[tokio::test]
async fn the_free_plan_lets_ten_of_fifteen_through_and_five_more_after_five_seconds() {
    let spile = with_routes("[[routes]]\npath = \"/\"\nupstream = \"UPSTREAM\"").await;
    for _ in 0..10 {
        assert_eq!(spile.get("/scores", &[]).await.status, 200);
    }
    for _ in 0..5 {
        let answer = spile.get("/scores", &[]).await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    }
    spile.clock.advance(Duration::from_secs(5));
    for _ in 0..5 {
        assert_eq!(spile.get("/scores", &[]).await.status, 200);
    }
    assert_eq!(spile.get("/scores", &[]).await.status, 429);
}

#[tokio::test]
async fn routes_know_the_tenants_of_the_file_and_the_plans_that_they_are_for() {
    let spile = with_routes(
        "[[routes]]\npath = \"/private\"\nupstream = \"UPSTREAM\"\nstrip_prefix = true\nrequire_api_key = true
         [[routes]]\npath = \"/paid\"\nupstream = \"UPSTREAM\"\nonly_plans = [\"pro\"]",
    )
    .await;
    assert_eq!(spile.get("/private/scores", &[]).await.status, 401);
    assert_eq!(spile.get("/private/scores", &[("x-api-key", "guess")]).await.status, 401);
    let answer = spile.get("/private/scores", &[ACME]).await;
    assert_eq!((answer.status, &answer.json()["path"]), (200, &"/scores".into()));
    assert_eq!(answer.json()["headers"]["x-tenant-id"], "acme");
    assert_eq!(answer.json()["headers"]["x-plan"], "pro");
    assert_eq!(spile.get("/paid", &[ACME]).await.status, 200);
    for fields in [&[BOLT][..], &[]] {
        let refused = spile.get("/paid", fields).await;
        assert_eq!(refused.status, 403);
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert_eq!(refused.json()["detail"], "the plan does not include this route");
    }
    let metrics = spile.metrics().await;
    let counted = "http_server_requests_total{listener=\"gateway\",status=\"401\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_routes_own_limits_count_per_client_and_route_and_reads_apart_from_writes() {
    let limits = |id: &str| {
        format!(
            "[[routes.limits]]\nid = \"{id}-writes\"\nmatch = {{ methods = [\"POST\"] }}\nplans = [\"few\"]\ncost = 3
             [[routes.limits]]\nid = \"{id}-reads\"\nmatch = {{ methods = [\"GET\"] }}\nplans = [\"few\"]\nkey = [\"tenant\"]\n"
        )
    };
    let route = |path: &str| format!("[[routes]]\npath = \"{path}\"\nupstream = \"UPSTREAM\"\n");
    let spile =
        with_routes(&[route("/a"), limits("a"), route("/b"), limits("b"), route("/c")].concat()).await;
    for path in ["/a", "/b"] {
        for _ in 0..3 {
            assert_eq!(spile.get(path, &[ACME]).await.status, 200, "{path}");
        }
        let denied = spile.get(path, &[ACME]).await;
        assert_eq!((denied.status, denied.header("x-ratelimit-limit")), (429, Some("3")), "{path}");
    }
    assert_eq!(spile.get("/a", &[BOLT]).await.status, 200, "another client has a bucket of its own");
    assert_eq!(spile.get("/a", &[]).await.status, 401, "these limits know tenants alone");
    assert_eq!(
        spile.get("/c", &[ACME]).await.status,
        200,
        "a route without limits of its own has the rule's"
    );
    let left = spile.get("/c", &[ACME]).await.header("x-ratelimit-remaining").map(str::to_owned);
    assert_eq!(left.as_deref(), Some("92"), "two denials charged nobody: eight requests passed");
    let fresh = spile.send(Method::POST, "/a", &[("x-api-key", "bob")]).await;
    assert_eq!(
        fresh.status, 429,
        "reads and writes share the plan's bucket: two tokens do not pay for a write"
    );
}

#[tokio::test]
async fn what_the_upstream_reports_is_charged_and_never_shown() {
    let spile =
        with_routes("[[routes]]\npath = \"/\"\nupstream = \"UPSTREAM\"\ncost_from_response = true").await;
    let answer = spile.get("/", &[("x-cost", "7")]).await;
    assert_eq!((answer.status, answer.header("x-ratelimit-cost")), (200, None));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("3"));
}

#[tokio::test]
async fn a_cost_that_is_known_late_goes_into_the_debt_that_the_plan_allows() {
    // The clock starts at 13:46:40, so that 36,800 seconds of the day are left.
    for (plan, wait) in [
        ("capacity = 5\nrefill = \"1/s\"", "6"),
        ("capacity = 5\nrefill = \"1/s\"\ndebt = 2", "3"),
        ("capacity = 5\nrefill = \"1/s\"\ndebt = 0", "1"),
        ("quota = 5\nper = \"day\"\ndebt = 3", "36800"),
    ] {
        let upstream = echo("one").await;
        let route =
            format!("[[routes]]\npath = \"/\"\nupstream = \"http://{upstream}\"\ncost_from_response = true");
        let spile = Spile::start(&format!("[plans.free]\n{plan}\n{route}\n")).await;
        assert_eq!(spile.get("/", &[("x-cost", "100")]).await.status, 200, "{plan}");
        let denied = spile.get("/", &[]).await;
        assert_eq!((denied.status, denied.header("retry-after")), (429, Some(wait)), "{plan}");
        spile.clock.advance(Duration::from_secs(wait.parse().expect("seconds")));
        assert_eq!(spile.get("/", &[]).await.status, 200, "{plan}");
    }
}

#[tokio::test]
async fn an_answer_is_settled_at_what_its_body_says_and_counted() {
    let spile = with_routes(
        "[[routes]]\nname = \"model\"\npath = \"/\"\nupstream = \"UPSTREAM\"\ncost_from_response = \"json:/cost\"
         estimate = 5\n[[routes.limits]]\nid = \"requests\"\nplans = [\"few\"]\nfixed_cost = true",
    )
    .await;
    let left = async |cost: &str| {
        let told = spile.get("/", &[("x-cost", cost)]).await;
        assert_eq!(told.status, 200);
        told.header("x-ratelimit-remaining").map(str::to_owned)
    };
    assert_eq!(
        left("4").await.as_deref(),
        Some("5"),
        "ten tokens less the estimate cover one request, and two more are allowed"
    );
    assert_eq!(left("").await.as_deref(), Some("1"), "ten tokens less four and the estimate");
    assert_eq!(spile.get("/", &[]).await.status, 429, "the estimate of an answer without a cost stays");
    let metrics = spile.metrics().await;
    for result in ["settled", "no_number"] {
        let series = format!("gateway_answer_costs_total{{route=\"model\",result=\"{result}\"}} 1");
        assert!(metrics.contains(&series), "{series}\n{metrics}");
    }
}

#[tokio::test]
async fn two_limits_that_share_a_bucket_charge_it_once_at_the_higher_cost() {
    let limit =
        |id: &str, cost: u8| format!("[[routes.limits]]\nid = \"{id}\"\nplans = [\"few\"]\ncost = {cost}\n");
    let route = "[[routes]]\npath = \"/\"\nupstream = \"UPSTREAM\"\n";
    let spile = with_routes(&[route, &limit("one", 1), &limit("two", 2)].concat()).await;
    let answer = spile.get("/", &[]).await;
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("1")));
    assert_eq!(spile.get("/", &[]).await.status, 429);
}

#[tokio::test]
async fn the_factor_and_the_queue_are_in_the_metrics() {
    let spile = with_routes(
        "[[routes]]\nname = \"scores\"\npath = \"/\"\nupstream = \"UPSTREAM\"\nadaptive = true
         concurrency = { per_upstream = 7, queue = 3 }",
    )
    .await;
    assert_eq!(spile.get("/", &[]).await.status, 200);
    let metrics = spile.metrics().await;
    for (series, value) in [
        ("gateway_adaptive_factor{route=\"scores\"}", "1"),
        ("gateway_concurrency_in_use{route=\"scores\"", "0"),
        ("gateway_queue_depth{route=\"scores\"", "0"),
        ("gateway_upstream_up{route=\"scores\"", "1"),
        ("gateway_retries_total{route=\"scores\"}", "0"),
    ] {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(series))
            .unwrap_or_else(|| panic!("{series}\n{metrics}"));
        assert!(line.ends_with(&format!(" {value}")), "{line}");
        let name = series.split('{').next().expect("a name");
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} says what it is");
    }
}
