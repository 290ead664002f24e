//! Signed tokens: which caller they identify, and which are refused.

use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use spile_core::{Clock, FakeClock, Micros, Plan};
use spile_gateway::{Gateway, JwtKeyFile, JwtVerifier};
use tempfile::TempDir;

use crate::support::{
    Backend, Running, by_tenant_or_address, limiter_on, plan, policy, policy_for, running, tenant, to, until,
};

const SECRET: &[u8] = b"a shared secret of 32 bytes or more";

struct Keys {
    folder: TempDir,
}

impl Keys {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn now(clock: &FakeClock) -> u64 {
    clock.now().get() / 1_000_000
}

fn signed(header: &Header, claims: &Value, key: &EncodingKey) -> String {
    format!("Bearer {}", jsonwebtoken::encode(header, claims, key).unwrap())
}

fn by_secret(claims: &Value) -> String {
    signed(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET))
}

fn plans() -> [Plan; 2] {
    [plan("free", 100, 1), plan("pro", 1_000, 1)]
}

async fn guarded(backend: &Backend, clock: &FakeClock, jwt: JwtVerifier) -> Running {
    running(
        Gateway::builder(limiter_on(clock))
            .clock(clock.clone())
            .jwt(jwt.issuer("https://issuer.test").audience("scores").tenant_claim("org").plan_claim("tier"))
            .route(to(backend.upstream()).require_auth(true))
            .policy(policy(plans(), [by_tenant_or_address("default")])),
    )
    .await
}

fn good(clock: &FakeClock) -> Value {
    json!({"sub": "ada", "iss": "https://issuer.test", "aud": ["scores", "x"], "exp": now(clock) + 100, "org": "acme", "tier": "pro"})
}

/// A token header with a critical extension.
fn critical() -> Header {
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["b64".to_owned()]);
    header
}

fn with(mut claims: Value, name: &str, value: &Value) -> Value {
    claims[name] = value.clone();
    claims
}

#[tokio::test]
async fn a_token_stands_for_a_principal_its_tenant_and_its_plan_until_it_expires() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret)
        .unwrap()
        .leeway(Duration::from_secs(5));
    let gateway = guarded(&backend, &clock, jwt).await;
    let token = by_secret(&good(&clock));
    let answer = gateway.get("/", &[("authorization", &token)]).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-ratelimit-limit")), (200, Some("1000")));
    let seen = backend.last();
    assert_eq!((seen.header("x-tenant-id"), seen.header("x-plan")), (Some("acme"), Some("pro")));
    assert_eq!(seen.header("authorization"), Some(token.as_str()), "upstreams may read the token too");
    clock.advance(Duration::from_secs(104));
    assert_eq!(gateway.get("/", &[("authorization", &token)]).await.status, 200, "within the leeway");
    clock.advance(Duration::from_secs(2));
    let expired = gateway.get("/", &[("authorization", &token)]).await;
    assert_eq!(
        (expired.status.as_u16(), expired.json()["detail"].as_str()),
        (401, Some("the token has expired"))
    );
}

#[tokio::test]
async fn a_token_that_is_not_quite_right_is_not_accepted() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let gateway = guarded(&backend, &clock, jwt).await;
    let good = good(&clock);
    let mut wrong = vec![
        by_secret(&with(good.clone(), "iss", &json!("https://other.test"))),
        by_secret(&with(good.clone(), "aud", &json!("other"))),
        by_secret(&with(good.clone(), "aud", &json!(null))),
        by_secret(&with(good.clone(), "exp", &json!(null))),
        by_secret(&with(good.clone(), "exp", &json!("soon"))),
        by_secret(&with(good.clone(), "nbf", &json!(now(&clock) + 1_000))),
        by_secret(&with(good.clone(), "sub", &json!(null))),
        signed(&Header::new(Algorithm::HS256), &good, &EncodingKey::from_secret(b"another secret")),
        signed(&Header::new(Algorithm::HS512), &good, &EncodingKey::from_secret(SECRET)),
        signed(&critical(), &good, &EncodingKey::from_secret(SECRET)),
        by_secret(&with(good.clone(), "exp", &json!(-1))),
        by_secret(&with(good.clone(), "exp", &json!(now(&clock) as f64 - 60.5))),
        by_secret(&with(good.clone(), "aud", &json!([{"scores": 1}, 7]))),
        "Bearer a.b.c".to_owned(),
        "Bearer ..".to_owned(),
        "Bearer an-opaque-one".to_owned(),
        "Bearer".to_owned(),
        by_secret(&good).replace("Bearer ", "bEARER\t") + "x",
    ];
    let mut unsigned = by_secret(&good);
    unsigned.replace_range(7..unsigned.find('.').unwrap(), "eyJhbGciOiJub25lIn0");
    wrong.push(unsigned);
    for token in wrong {
        let answer = gateway.get("/", &[("authorization", &token)]).await;
        assert_eq!(answer.status, 401, "{token}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn public_keys_come_as_pem_or_as_a_set_and_are_never_used_as_secrets() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let signer = EncodingKey::from_ec_der(&pair.serialize_der());
    let public = pair.public_key_pem();
    let es256 = Header::new(Algorithm::ES256);
    let jwt = JwtVerifier::from_file(keys.file("public.pem", public.as_bytes()), JwtKeyFile::EcPem).unwrap();
    let gateway = guarded(&backend, &clock, jwt).await;
    let good = good(&clock);
    assert_eq!(gateway.get("/", &[("authorization", &signed(&es256, &good, &signer))]).await.status, 200);
    let confused =
        signed(&Header::new(Algorithm::HS256), &good, &EncodingKey::from_secret(public.as_bytes()));
    assert_eq!(gateway.get("/", &[("authorization", &confused)]).await.status, 401);

    let mut jwk =
        serde_json::to_value(jsonwebtoken::jwk::Jwk::from_encoding_key(&signer, Algorithm::ES256).unwrap())
            .unwrap();
    jwk["kid"] = json!("k1");
    let path = keys.file("jwks.json", json!({"keys": [jwk.clone()]}).to_string().as_bytes());
    let gateway =
        guarded(&backend, &clock, JwtVerifier::from_file(path.clone(), JwtKeyFile::Jwks).unwrap()).await;
    let named = |kid: &str| {
        let mut header = es256.clone();
        header.kid = Some(kid.to_owned());
        signed(&header, &good, &signer)
    };
    assert_eq!(gateway.get("/", &[("authorization", &named("k1"))]).await.status, 200);
    assert_eq!(gateway.get("/", &[("authorization", &named("k2"))]).await.status, 401);
    jwk["kid"] = json!("the second key");
    std::fs::write(path, json!({"keys": [jwk]}).to_string()).unwrap();
    until("the new set", || async {
        gateway.get("/", &[("authorization", &named("the second key"))]).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn rsa_keys_sign_too() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let signer = EncodingKey::from_rsa_pem(include_bytes!("keys/rsa.pem")).unwrap();
    let path = keys.file("rsa.pem", include_bytes!("keys/rsa.public.pem"));
    let gateway = guarded(&backend, &clock, JwtVerifier::from_file(path, JwtKeyFile::RsaPem).unwrap()).await;
    let token = signed(&Header::new(Algorithm::RS256), &good(&clock), &signer);
    assert_eq!(gateway.get("/", &[("authorization", &token)]).await.status, 200);
}

#[tokio::test]
async fn a_moment_may_be_a_fraction_and_an_audience_one_of_several() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let gateway = guarded(&backend, &clock, jwt).await;
    let claims = with(good(&clock), "exp", &json!(now(&clock) as f64 + 0.5));
    for claims in [with(claims.clone(), "aud", &json!("scores")), claims] {
        let token = by_secret(&claims).replace("Bearer ", "bearer \t ");
        assert_eq!(gateway.get("/", &[("authorization", &token)]).await.status, 200);
    }
}

#[tokio::test]
async fn a_token_is_checked_whatever_else_comes_with_it() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let acme = tenant("acme", "pro", "k-acme");
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .jwt(jwt.tenant_claim("org"))
            .policy(policy_for(plans(), [by_tenant_or_address("default")], [acme]))
            .route(to(backend.upstream())),
    )
    .await;
    let claims = with(good(&clock), "org", &json!("other"));
    let (token, key) = (by_secret(&claims), ("x-api-key", "k-acme"));
    assert_eq!(gateway.get("/", &[key, ("authorization", &token)]).await.status, 200);
    assert_eq!(backend.last().header("x-tenant-id"), Some("acme"), "the key says whose request it is");
    let forged = signed(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(b"forged"));
    let basic = ("authorization", "Basic x");
    for fields in [
        &[key, ("authorization", forged.as_str())][..],
        &[("authorization", &token), ("authorization", &forged)],
        &[basic, ("authorization", &forged)],
        &[key, basic, ("authorization", "Basic y"), ("authorization", &forged)],
        &[key, ("authorization", "Bearer opaque")],
        &[key, ("authorization", "Bearer a.b.c.d.e")],
        &[("authorization", &forged.replace("Bearer ", "Bearer\t"))],
    ] {
        assert_eq!(gateway.get("/", fields).await.status, 401, "{fields:?}");
    }
    assert_eq!(backend.seen().len(), 1, "no token that was not checked reaches an upstream");
    assert_eq!(gateway.get("/", &[key, basic]).await.status, 200, "other schemes are the upstream's affair");
}

#[tokio::test]
async fn forged_tokens_are_checked_at_a_bounded_rate_and_right_ones_pass() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let plans = [plan("free", 1_000_000, 1), plan("pro", 1_000_000, 1)];
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .jwt(jwt)
            .policy(policy(plans, [by_tenant_or_address("default")]))
            .route(to(backend.upstream())),
    )
    .await;
    let known = by_secret(&good(&clock));
    let get = async |token: &str| gateway.get("/", &[("authorization", token)]).await.status.as_u16();
    assert_eq!(get(&known).await, 200);
    let key = EncodingKey::from_secret(b"another secret of 32 bytes or more");
    let forge =
        |number| signed(&Header::new(Algorithm::HS256), &with(good(&clock), "jti", &json!(number)), &key);
    let (start, mut checked, mut refused) = (tokio::time::Instant::now(), 0, 0);
    for number in 0..2_000 {
        match get(&forge(number)).await {
            401 => checked += 1,
            status => {
                assert_eq!(status, 429);
                refused += 1;
            }
        }
        if number % 100 == 0 {
            assert_eq!(get(&known).await, 200, "one that was right before passes");
        }
    }
    let most = 101 + start.elapsed().as_millis() / 10;
    assert!(checked <= most, "{checked} of at most {most} signatures were checked, {refused} were not");
    let new = by_secret(&with(good(&clock), "jti", &json!("new")));
    until("a new token passes once forged ones cease", async || get(&new).await == 200).await;
}

#[tokio::test]
async fn a_tenant_has_one_plan_whatever_its_token_claims() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let paid = spile_gateway::Route::new("/paid", [backend.upstream()]).unwrap().only_plans(["pro"]);
    let gateway = running(
        Gateway::builder(limiter_on(&clock))
            .clock(clock.clone())
            .jwt(jwt.tenant_claim("org").plan_claim("tier"))
            .route(to(backend.upstream()))
            .route(paid)
            .policy(policy_for(
                plans(),
                [by_tenant_or_address("default")],
                [tenant("acme", "pro", "k-acme")],
            )),
    )
    .await;
    // Tenant and claimed plan; the plan that applies, its limit, and whether it includes the route.
    for (org, tier, plan, limit, paid) in [
        ("acme", json!("free"), Some("free"), "100", 403),
        ("acme", json!("pro"), Some("pro"), "1000", 200),
        ("acme", json!("unheard-of"), Some("pro"), "1000", 200),
        ("acme", json!(7), Some("pro"), "1000", 200),
        ("other", json!("unheard-of"), None, "100", 403),
    ] {
        let token = by_secret(&with(with(good(&clock), "org", &json!(org)), "tier", &tier));
        let answer = gateway.get("/", &[("authorization", &token)]).await;
        assert_eq!(answer.header("x-ratelimit-limit"), Some(limit), "{org} {tier}");
        assert_eq!(backend.last().header("x-plan"), plan, "{org} {tier}");
        assert_eq!(gateway.get("/paid", &[("authorization", &token)]).await.status, paid, "{org} {tier}");
    }
}

#[tokio::test]
async fn keys_of_a_set_are_used_for_what_they_are_for() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let signer = EncodingKey::from_ec_der(&pair.serialize_der());
    let jwk =
        serde_json::to_value(jsonwebtoken::jwk::Jwk::from_encoding_key(&signer, Algorithm::ES256).unwrap())
            .unwrap();
    let set = |name: &str, value: &str| {
        let mut jwk = jwk.clone();
        jwk[name] = json!(value);
        let path = keys.file("jwks.json", json!({"keys": [jwk]}).to_string().as_bytes());
        JwtVerifier::from_file(path, JwtKeyFile::Jwks)
    };
    let token = signed(&Header::new(Algorithm::ES256), &good(&clock), &signer);
    let gateway = guarded(&backend, &clock, set("use", "sig").unwrap()).await;
    assert_eq!(gateway.get("/", &[("authorization", &token)]).await.status, 200);
    assert!(set("use", "enc").is_err() && set("alg", "ES384").is_err(), "a set of no use is said to be one");
}

#[tokio::test]
async fn a_rotated_secret_is_seen_though_its_file_looks_the_same() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let path = keys.file("secret", SECRET);
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    let jwt = JwtVerifier::from_file(path.clone(), JwtKeyFile::Secret).unwrap();
    let gateway = guarded(&backend, &clock, jwt).await;
    let mut next = SECRET.to_vec();
    next.reverse();
    let (old, new) = (by_secret(&good(&clock)), EncodingKey::from_secret(&next));
    let new = signed(&Header::new(Algorithm::HS256), &good(&clock), &new);
    assert_eq!(gateway.get("/", &[("authorization", &old)]).await.status, 200);
    std::fs::write(&path, &next).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    until("the new secret", || async { gateway.get("/", &[("authorization", &new)]).await.status == 200 })
        .await;
    assert_ne!(gateway.get("/", &[("authorization", &old)]).await.status, 200);
}

#[test]
fn a_secret_that_is_shorter_than_its_signatures_is_refused_by_its_length() {
    let keys = Keys::new();
    let refused = |bytes: &[u8], kind| {
        JwtVerifier::from_file(keys.file("keys", bytes), kind).map(drop).map_err(|why| why.to_string())
    };
    let bound = "bytes; HS256 takes 32 or more";
    for (secret, bytes) in
        [(&b""[..], 0), (b"\n", 0), (b"x", 1), (&[b'x'; 31], 31), (b"x                               \n", 1)]
    {
        let why = refused(secret, JwtKeyFile::Secret).unwrap_err();
        assert!(why.contains(&format!("the secret has {bytes} {bound}")), "{why}");
    }
    assert_eq!(refused(&[b'x'; 32], JwtKeyFile::Secret), Ok(()));
    let long = json!({"kty": "oct", "k": "A".repeat(43), "kid": "long"});
    let set = |short: Value| json!({"keys": [long, short]}).to_string();
    for (k, bytes) in [("", 0), ("eA", 1), (&"A".repeat(42), 31)] {
        let why = refused(set(json!({"kty": "oct", "k": k, "kid": "old"})).as_bytes(), JwtKeyFile::Jwks)
            .unwrap_err();
        assert!(why.contains(&format!("the key `old` has {bytes} {bound}")), "{why}");
    }
    for other in [json!({"kty": "oct", "k": "eA", "use": "enc"}), long.clone()] {
        assert_eq!(refused(set(other).as_bytes(), JwtKeyFile::Jwks), Ok(()), "only keys that are used count");
    }
}

#[tokio::test]
async fn a_token_whose_tenant_no_field_can_hold_is_not_accepted() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let gateway = guarded(&backend, &clock, jwt).await;
    for tenant in ["a\r\nx-plan: gold", "a\n", "\r", "a\0", "a\tb", "\u{7f}", "a\u{85}b", "\u{1b}[0m"] {
        let token = by_secret(&with(good(&clock), "org", &json!(tenant)));
        let answer = gateway.get("/", &[("authorization", &token)]).await;
        assert_eq!(answer.status, 401, "{tenant:?}");
        assert_eq!(answer.json()["detail"], "the token's tenant holds a control character");
    }
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn the_names_in_a_token_are_identities_like_any_other() {
    let (keys, clock, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let gateway = guarded(&backend, &clock, jwt).await;
    let (longest, too_long) = ("x".repeat(1_024), "x".repeat(1_025));
    for (claim, name, detail) in [
        ("sub", "a\u{85}b", Some("the token's subject holds a control character")),
        ("sub", "a\n", Some("the token's subject holds a control character")),
        ("sub", &too_long, Some("the token's subject has more than 1024 bytes")),
        ("org", &too_long, Some("the token's tenant has more than 1024 bytes")),
        ("sub", &longest, None),
        ("sub", "ann\u{200D}\u{A0} ", None),
    ] {
        let token = by_secret(&with(good(&clock), claim, &json!(name)));
        let answer = gateway.get("/", &[("authorization", &token)]).await;
        let status = if detail.is_some() { 401 } else { 200 };
        assert_eq!(answer.status, status, "{claim} {name:?}");
        if let Some(detail) = detail {
            assert_eq!(answer.json()["detail"], detail);
        }
    }
}

/// A clock with independent monotonic and wall time.
struct TwoTimes {
    counted: FakeClock,
    wall: FakeClock,
}

impl Clock for TwoTimes {
    fn now(&self) -> Micros {
        self.counted.now()
    }

    fn wall(&self) -> Micros {
        self.wall.now()
    }
}

#[tokio::test]
async fn tokens_expire_by_the_calendar_and_not_by_the_clock_for_durations() {
    let (keys, wall, backend) = (Keys::new(), FakeClock::default(), Backend::friendly().await);
    let jwt = JwtVerifier::from_file(keys.file("secret", SECRET), JwtKeyFile::Secret).unwrap();
    let clock = TwoTimes { counted: FakeClock::at(Micros::from_secs(5)), wall: wall.clone() };
    let route = to(backend.upstream()).require_auth(true);
    let gateway = running(Gateway::builder(limiter_on(&wall)).clock(clock).jwt(jwt).route(route)).await;
    let token = by_secret(&good(&wall));
    assert_eq!(gateway.get("/", &[("authorization", &token)]).await.status, 200);
    wall.advance(Duration::from_secs(3_600));
    assert_eq!(gateway.get("/", &[("authorization", &token)]).await.status, 401);
}
