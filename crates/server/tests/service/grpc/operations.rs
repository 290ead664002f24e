//! What operators see: settings, health, reflection, metrics, and how it ends.

use rustix::process::Signal;
use spile_testkit::wait::PATIENCE;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::client::{Client, OK};
use super::{RULES, client, edge, start};
use crate::support::Process;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

#[tokio::test]
async fn every_answer_is_counted_by_its_result_and_every_decision_by_its_rule() {
    let spile = start().await;
    let client = client(&spile).await;
    for _ in 0..5 {
        client.ask(edge(&[&[("generic_key", "login"), ("remote_address", "::1")]])).await;
    }
    client.ask(edge(&[&[("unheard", "of")]])).await;
    let metrics = spile.admin("/metrics").await.text;
    for (series, value) in [
        ("rpc_server_requests_total{listener=\"grpc\",result=\"allowed\"}", 3),
        ("rpc_server_requests_total{listener=\"grpc\",result=\"limited\"}", 2),
        ("rpc_server_requests_total{listener=\"grpc\",result=\"other\"}", 1),
        ("http_server_requests_total{listener=\"grpc\",status=\"200\"}", 6),
    ] {
        assert!(metrics.contains(&format!("{series} {value}\n")), "{series} {value} in {metrics}");
    }
    let denied = "ratelimit_decisions_total{rule=\"login\",limit=\"three\",outcome=\"denied\"";
    assert!(metrics.lines().any(|line| line.starts_with(denied) && line.ends_with(" 2")), "{metrics}");
}

#[tokio::test]
async fn health_is_told_until_the_server_ends_and_keeps_it_from_nothing() {
    let spile = start().await;
    let client = client(&spile).await;
    let mut health = HealthClient::new(client.channel.clone());
    for service in ["", SERVICE] {
        let answer =
            health.check(HealthCheckRequest { service: service.to_owned() }).await.expect("it is known");
        assert_eq!(answer.into_inner().status, SERVING, "{service:?}");
    }
    let watching = health.watch(HealthCheckRequest { service: SERVICE.to_owned() }).await;
    let mut told = watching.expect("it is known").into_inner();
    assert_eq!(told.message().await.expect("it tells").map(|told| told.status), Some(SERVING));
    let stopped = spile.stop();
    let mut last = SERVING;
    while let Ok(Some(next)) = told.message().await {
        last = next.status;
    }
    assert_eq!(last, NOT_SERVING);
    tokio::time::timeout(PATIENCE, stopped).await.expect("nobody holds it up").expect("it ends by itself");
}

#[tokio::test]
async fn reflection_names_the_services_and_brings_the_files() {
    let spile = start().await;
    let mut reflection = ServerReflectionClient::new(client(&spile).await.channel);
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let questions = vec![
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(SERVICE.to_owned())),
    ];
    let stream = reflection.server_reflection_info(futures_util::stream::iter(questions)).await;
    let mut answers = stream.expect("it answers").into_inner();
    let mut next =
        async || answers.message().await.expect("it answers").and_then(|told| told.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = next().await else { panic!("no list") };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in [SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let Some(MessageResponse::FileDescriptorResponse(files)) = next().await else { panic!("no file") };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[test]
fn it_is_served_by_flag_and_by_variable_and_told_of_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    std::fs::write(&path, RULES.replace("grpc = ", "# grpc = ")).expect("the folder is ours");
    let path = path.to_str().expect("the folder's name is text");
    for (flags, variables) in [
        (&["--config", path, "--grpc", "127.0.0.1:0"][..], &[][..]),
        (&["--config", path], &[("SPILE_LISTEN__GRPC", "127.0.0.1:0")]),
    ] {
        let spile = Process::serve_with(flags, variables);
        assert!(spile.banner.contains(SERVICE), "{}", spile.banner);
        let address = spile.address("grpc").parse().expect("an address");
        {
            // Gone before the server ends: a client that stands still would hold it up for as long as it may.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let code = runtime.expect("a runtime").block_on(async {
                let request = edge(&[&[("remote_address", "::1")]]);
                Client::connect(address).await.ask(request).await.overall_code
            });
            assert_eq!(code, OK);
        }
        assert_eq!(spile.end_by(Signal::TERM).0.code(), Some(0));
    }
    assert!(!Process::serve(&[]).banner.contains(SERVICE));
}
