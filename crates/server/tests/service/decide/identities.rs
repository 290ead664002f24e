//! One rule for identities at every door: opaque UTF-8 of 1 to 1,024 bytes without control characters.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use spile_core::Key;
use spile_server::Config;

use crate::doors::{House, Store};
use crate::grpc::client::{OK, Request};
use crate::support::{Answer, TOKEN};

const POLICY: &str = r#"
[plans.three]
capacity = 3
refill = "1/h"
[[rules]]
id = "written"
plans = ["three"]
[[rules]]
id = "user"
match = { path = "/user" }
key = ["principal", "ip"]
plans = ["three"]
[[rules]]
id = "header"
match = { path = "/header" }
key = ["header:x-who", "ip"]
plans = ["three"]
[[rules]]
id = "edge"
match = { domain = "edge", entries = ["who"] }
plans = ["three"]
"#;

/// A place where an identity comes in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Check,
    Plans,
    Batch,
    OwnLimit,
    Refund,
    Resp,
    Throttle,
    AuthUser,
    AuthHeader,
    GatewayUser,
    GatewayHeader,
    Grpc,
    AdminBuckets,
    AdminTenant,
    TenantInFile,
    Literal,
    Library,
}

impl Place {
    const ALL: [Self; 17] = [
        Self::Check,
        Self::Plans,
        Self::Batch,
        Self::OwnLimit,
        Self::Refund,
        Self::Resp,
        Self::Throttle,
        Self::AuthUser,
        Self::AuthHeader,
        Self::GatewayUser,
        Self::GatewayHeader,
        Self::Grpc,
        Self::AdminBuckets,
        Self::AdminTenant,
        Self::TenantInFile,
        Self::Literal,
        Self::Library,
    ];

    const fn is_field(self) -> bool {
        matches!(self, Self::AuthUser | Self::AuthHeader | Self::GatewayUser | Self::GatewayHeader)
    }

    /// Whether the text can be sent there at all. A field of HTTP holds one line without blanks around it, and an empty
    /// one is as good as absent.
    fn can_carry(self, text: &str) -> bool {
        let as_field = !text.is_empty()
            && text.trim_matches([' ', '\t']) == text
            && text.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7F));
        match self {
            // An empty name in a path is another path.
            Self::AdminBuckets | Self::AdminTenant => !text.is_empty(),
            _ => !self.is_field() || as_field,
        }
    }

    /// Whether the rule refuses the text there. Values of headers and descriptors are a client's bytes, known by their
    /// hash or spelt out, so that no length lets one escape its limit.
    fn refuses(self, text: &str) -> bool {
        let control = text.contains(char::is_control);
        match self {
            Self::Grpc => false,
            Self::AuthHeader | Self::GatewayHeader => control,
            _ => control || !(1..=1_024).contains(&text.len()),
        }
    }

    /// What is left after one more request of that identity, or what is wrong with it. Places that spend nothing have all
    /// three left.
    async fn ask(self, house: &House, text: &str) -> Result<u64, String> {
        let spile = &house.spile;
        match self {
            Self::Check => of_json(&spile.check(json!({"ruleId": "written", "identity": text})).await),
            Self::Plans => of_json(&spile.check(json!({"plans": ["three"], "identity": text})).await),
            Self::Batch => {
                let answer = spile.batch(json!([{"ruleId": "written", "identity": text}])).await;
                if answer.status != 200 {
                    return Err(answer.text);
                }
                Ok(answer.json()[0]["remaining"].as_u64().expect("a decision has a remainder"))
            }
            Self::OwnLimit => {
                let own = json!({"ruleId": "own", "identity": text, "capacity": 3, "refillPerSecond": 0.001});
                of_json(&spile.check(own).await)
            }
            Self::Refund => of_json(&spile.refund(json!({"ruleId": "written", "identity": text})).await),
            Self::Resp => {
                let reply = house.resp().await.ask(&["SPILE.CHECK", "written", text]).await;
                let left = reply.split("remaining, ").nth(1).and_then(|rest| rest.split(',').next());
                left.map(|left| left.parse().expect("a number")).ok_or(reply)
            }
            Self::Throttle => {
                let reply = house.resp().await.ask(&["CL.THROTTLE", text, "2", "1", "3600"]).await;
                let left = reply.strip_prefix('[').and_then(|rest| rest.split(", ").nth(2));
                left.map(|left| left.parse().expect("a number")).ok_or_else(|| reply.clone())
            }
            Self::AuthUser => of_fields(&spile.get("/v1/auth/user", &[("x-forwarded-user", text)]).await),
            Self::AuthHeader => of_fields(&spile.get("/v1/auth/header", &[("x-who", text)]).await),
            Self::GatewayUser => of_fields(&gateway(house, "/user", "x-forwarded-user", text).await),
            Self::GatewayHeader => of_fields(&gateway(house, "/header", "x-who", text).await),
            Self::Grpc => {
                let response = house.grpc().await.ask(Request::new("edge", &[&[("who", text)]])).await;
                assert_eq!(response.overall_code, OK);
                Ok(response.statuses[0].limit_remaining.into())
            }
            Self::AdminBuckets => {
                let path = format!("/admin/v1/buckets/{}", percent_encoded(text));
                nothing_spent(&admin(house, Method::GET, &path, Value::Null).await)
            }
            Self::AdminTenant => {
                let path = format!("/admin/v1/tenants/{}", percent_encoded(text));
                nothing_spent(&admin(house, Method::PUT, &path, json!({"plan": "three"})).await)
            }
            Self::TenantInFile => parsed(&format!("[[tenants]]\nid = {}\nplan = \"free\"\n", quoted(text))),
            Self::Literal => {
                let key = quoted(&format!("literal:{text}"));
                parsed(&format!("[[rules]]\nid = \"x\"\nkey = [{key}]\nplans = [\"free\"]\n"))
            }
            Self::Library => Key::new(text).map(|_| 3).map_err(|why| why.to_string()),
        }
    }
}

async fn gateway(house: &House, path: &str, field: &str, text: &str) -> Answer {
    let to = house.spile.gateway.expect("the listener is on");
    house.spile.send_to(to, Method::GET, path, &[(field, text)], "").await
}

async fn admin(house: &House, method: Method, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {TOKEN}");
    let fields = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    house.spile.send_to(house.spile.admin, method, path, &fields, body).await
}

fn of_json(answer: &Answer) -> Result<u64, String> {
    answer.json()["remaining"].as_u64().ok_or_else(|| answer.text.clone())
}

fn of_fields(answer: &Answer) -> Result<u64, String> {
    match (answer.status.as_u16(), answer.header("x-ratelimit-remaining")) {
        (200, Some(left)) => Ok(left.parse().expect("a number")),
        _ => Err(format!("{} {}", answer.status, answer.text)),
    }
}

fn nothing_spent(answer: &Answer) -> Result<u64, String> {
    if answer.status.is_success() { Ok(3) } else { Err(answer.text.clone()) }
}

fn parsed(text: &str) -> Result<u64, String> {
    let config = Config::parse(Path::new("spile.toml"), text.to_owned(), Vec::<(String, String)>::new());
    config.map(|_| 3).map_err(|why| why.to_string())
}

/// The text as TOML and JSON both write it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7F}', "\\u007F")
}

fn percent_encoded(text: &str) -> String {
    let encoded: Vec<String> = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    encoded.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identities_that_differ_in_any_byte_have_buckets_of_their_own_at_every_door() {
    let longest = "é".repeat(512);
    let almost = format!("{}e", "é".repeat(511));
    let accepted = [
        "ann",
        "Ann",
        "ann ",
        " ann",
        "  ",
        "ann\u{A0}",
        "ann\u{200B}",
        "ann\u{200C}",
        "ann\u{200D}",
        "\u{FEFF}ann",
        "ann\u{202E}",
        "ann\u{2028}",
        "ann\u{AD}",
        "ann\u{FFFD}",
        "ann\u{FFFF}",
        "ann\u{E0041}",
        "\u{A0}",
        "e\u{301}",
        "\u{E9}",
        "%41",
        "A",
        "a/b",
        "..",
        "a?b#c",
        "a{b}c:d|e=f",
        "\"\\'",
        "¢",
        "نام\u{200C}ها",
        &longest,
        &almost,
    ];
    for place in Place::ALL {
        let house = House::with(POLICY, &Store::Memory).await;
        let spends = place.ask(&house, "a first one").await != Ok(3);
        for text in accepted.into_iter().filter(|text| place.can_carry(text)) {
            let left = [place.ask(&house, text).await, place.ask(&house, text).await];
            let expected = if spends { [Ok(2), Ok(1)] } else { [Ok(3), Ok(3)] };
            assert_eq!(left, expected, "{place:?} {text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_identity_is_refused_at_every_door_by_the_character_or_the_length() {
    let long = "x".repeat(1_025);
    let long_in_bytes = "é".repeat(513);
    let refused = [
        "",
        "\0",
        "a\tb",
        "ann\n",
        "\r",
        "\u{1B}[0m",
        "ann\u{7F}",
        "\u{80}",
        "a\u{85}b",
        "\u{9F}",
        &long,
        &long_in_bytes,
    ];
    for place in Place::ALL {
        let house = House::with(POLICY, &Store::Memory).await;
        for text in refused.into_iter().filter(|text| place.can_carry(text)) {
            let told = place.ask(&house, text).await;
            assert_eq!(told.is_err(), place.refuses(text), "{place:?} {text:?} {told:?}");
            let Err(why) = told else { continue };
            let named = match text.chars().find(|c| c.is_control()) {
                Some(c) => format!("U+{:04X}", u32::from(c)),
                None if text.is_empty() => "empty".to_owned(),
                None => format!("{} bytes", text.len()),
            };
            let says = why.contains(&named) && why.contains("1 to 1024");
            // A client of the gateway is a stranger, and is told less.
            let stranger = matches!(place, Place::GatewayUser | Place::GatewayHeader);
            assert!(says || (stranger && why.contains("400")), "{place:?} {text:?} {why}");
        }
    }
}

#[tokio::test]
async fn the_longest_tenant_can_be_asked_for_wherever_it_can_be_named() {
    let longest = "t".repeat(1_024);
    let tenant = format!("[[tenants]]\nid = \"{longest}\"\nplan = \"three\"\n");
    let tenants = "[[rules]]\nid = \"tenants\"\nplans = \"tenant\"\n";
    let house = House::with(&format!("{POLICY}{tenant}{tenants}"), &Store::Memory).await;
    let name = format!("tenant:{longest}");
    let question = json!({"ruleId": "tenants", "identity": name});
    house.spile.check(question).await.is(200).says("/remaining", 2);
    let reply = house.resp().await.ask(&["SPILE.CHECK", "tenants", &name]).await;
    assert!(reply.contains("remaining, 1,"), "{reply}");
    let path = format!("/admin/v1/buckets/{name}?plan=three");
    admin(&house, Method::GET, &path, Value::Null).await.is(200).says("/buckets/0/tokens", 1);
    admin(&house, Method::DELETE, &path, Value::Null).await.is(204);
    let seen =
        admin(&house, Method::GET, &format!("/dashboard/buckets?plan=three&key={name}"), Value::Null).await;
    assert_ne!(seen.is(200).json()["mask"], "");
    let one_more = json!({"ruleId": "tenants", "identity": format!("{name}t")});
    let why = house.spile.check(one_more).await.is(400).json()["detail"].to_string();
    assert!(why.contains("1025 bytes"), "{why}");
}
