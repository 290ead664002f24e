//! Limits that a descriptor brings along.

use std::time::Duration;

use super::client::{OK, OVER_LIMIT, Rate};
use super::{client, edge, start};

#[tokio::test]
async fn a_limit_of_its_own_has_a_bucket_of_its_own() {
    let spile = start().await;
    let client = client(&spile).await;
    let plain = edge(&[&[("remote_address", "1.2.3.4")]]);
    let own = |requests_per_unit, unit| {
        plain.clone().with(|descriptor| {
            descriptor.limit = Some(Rate { requests_per_unit, unit, name: String::new() });
        })
    };
    assert_eq!(client.ask(own(2, 2)).await.told(), (OK, vec![(OK, 1)]));
    assert_eq!(client.ask(plain.clone()).await.told(), (OK, vec![(OK, 9)]));
    assert_eq!(client.ask(own(2, 2)).await.told(), (OK, vec![(OK, 0)]));
    let refused = client.ask(own(2, 2)).await;
    assert_eq!(refused.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
    let limit = refused.statuses[0].current_limit.clone().expect("a limit");
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit), ("envoy.override/minute", 2, 2));
    assert_eq!(client.ask(plain.clone()).await.told(), (OK, vec![(OK, 8)]));
    assert_eq!(client.ask(own(2, 3)).await.told(), (OK, vec![(OK, 1)]), "each unit has a bucket of its own");
    // Not one per second is none at all.
    assert_eq!(client.ask(own(0, 1)).await.overall_code, OVER_LIMIT);
    let wrong = client.try_ask(own(5, 0)).await.expect_err("no unit, no limit");
    assert!(wrong.message().starts_with("descriptors[0].limit.unit:"), "{wrong}");
}

#[tokio::test]
async fn a_month_and_a_year_are_those_of_the_calendar() {
    let spile = start().await;
    let client = client(&spile).await;
    let own = |unit| {
        edge(&[&[("remote_address", "1.2.3.4")]]).hits(5).with(|descriptor| {
            descriptor.limit = Some(Rate { requests_per_unit: 5, unit, name: String::new() });
        })
    };
    for (unit, name, days) in [(5, "envoy.override/month", 31), (6, "envoy.override/year", 366)] {
        assert_eq!(client.ask(own(unit)).await.told(), (OK, vec![(OK, 0)]));
        let denied = client.ask(own(unit)).await;
        assert_eq!(denied.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
        let limit = denied.statuses[0].current_limit.clone().expect("a limit");
        assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit), (name, 5, unit));
        let wait = denied.statuses[0].duration_until_reset.expect("a wait").seconds;
        assert!((1..=days * 86_400).contains(&wait), "{wait}");
        spile.advance(Duration::from_secs(wait.cast_unsigned()));
        assert_eq!(client.ask(own(unit)).await.told(), (OK, vec![(OK, 0)]), "the next one has begun");
    }
}

#[tokio::test]
async fn a_limit_of_its_own_needs_no_rule() {
    let spile = start().await;
    let client = client(&spile).await;
    let own = edge(&[&[("unheard", "of")]]).with(|descriptor| {
        descriptor.limit = Some(Rate { requests_per_unit: 1, unit: 3, name: String::new() });
    });
    assert_eq!(client.ask(own.clone()).await.told(), (OK, vec![(OK, 0)]));
    assert_eq!(client.ask(own).await.told(), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
    let metrics = spile.admin("/metrics").await.text;
    assert!(metrics.contains("ratelimit_decisions_total{rule=\"envoy.override\""), "{metrics}");
}
