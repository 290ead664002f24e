//! The example of the guide: a Spile that answers what the guide's Envoy asks.

use super::client::{OK, OVER_LIMIT};
use super::{client, config, edge};
use crate::support::Spile;

const GUIDE: &str = include_str!("../../../../../docs/guide/envoy.md");

#[tokio::test]
async fn the_rules_of_the_guide_answer_what_its_envoy_asks() {
    let (_, rest) = GUIDE.split_once("```toml\n").expect("the guide has a file");
    let (file, _) = rest.split_once("```").expect("it ends");
    let spile = Spile::start_with(config(&file.replace("127.0.0.1:8083", "127.0.0.1:0"))).await;
    let client = client(&spile).await;
    let address: &[(&str, &str)] = &[("remote_address", "203.0.113.7")];
    let login: &[(&str, &str)] = &[("generic_key", "login"), ("remote_address", "203.0.113.7")];
    for _ in 0..5 {
        assert_eq!(client.ask(edge(&[address, login])).await.overall_code, OK);
    }
    assert_eq!(client.ask(edge(&[address, login])).await.overall_code, OVER_LIMIT);
    assert_eq!(client.ask(edge(&[address])).await.overall_code, OK);
}
