//! A tenant is counted whatever door its requests come through.

use std::time::Duration;

use http::Method;
use spile_testkit::wait::PATIENCE;
use tokio::time::{sleep, timeout};

use super::door::Door;
use super::house::{House, Store};
use super::row::Caller::Acme;
use super::row::{BASE, row};
use crate::support::TOKEN;

const RULES: &str = r#"
[[rules]]
id = "x"
match = { path = "/x" }
plans = "tenant"
anonymous_plan = "three"
[[rules]]
id = "descriptors"
match = { domain = "edge", entries = ["tenant"] }
plans = "tenant"
anonymous_plan = "three"
"#;

#[tokio::test]
async fn a_tenant_is_counted_at_every_door() {
    let house = House::with(&format!("{BASE}\n{RULES}"), &Store::Memory).await;
    for (asked, door) in (1..).zip(Door::ALL) {
        let told = door.ask(&house, &row("counted", RULES).by(Acme)).await;
        let counted = async {
            while counted(&house).await < asked {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, counted)
            .await
            .unwrap_or_else(|_| panic!("{door:?} told {told} and did not count it"));
        assert_eq!(self::counted(&house).await, asked, "{door:?} counts once");
    }
}

/// Decisions about the tenant, allowed or not.
async fn counted(house: &House) -> u64 {
    let bearer = format!("Bearer {TOKEN}");
    let path = "/admin/v1/analytics.csv?by=tenant&name=acme";
    let answer =
        house.spile.send_to(house.spile.admin, Method::GET, path, &[("authorization", &bearer)], "").await;
    let of_line =
        |line: &str| -> u64 { line.split(',').skip(3).filter_map(|count| count.parse::<u64>().ok()).sum() };
    answer.is(200).text.lines().skip(1).map(of_line).sum()
}
