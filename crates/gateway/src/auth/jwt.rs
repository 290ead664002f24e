//! Verifies signed tokens (JWT).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};
use spile_core::{Key, KeyError, Micros};
use spile_listener::{FileLoadError, WatchedFiles};
use spile_policy::{CallerTenant, Policy};

use super::authenticator::{AuthAttempt, AuthError};
use super::caller::Caller;

/// Longer tokens are refused without being parsed.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// The shortest secret, as long as the output of HS256 (RFC 7518, 3.2). A shorter one can be found by brute force.
const MIN_SECRET_BYTES: usize = 32;

const SUBJECT_ERRORS: [&str; 2] =
    ["the token's subject holds a control character", "the token's subject has more than 1024 bytes"];
const TENANT_ERRORS: [&str; 2] =
    ["the token's tenant holds a control character", "the token's tenant has more than 1024 bytes"];

/// Accepts tokens by their signature, issuer, audience and time.
///
/// A token is checked only with the algorithm of the key, never with the one that its header claims, so a public key
/// can never be used as if it were a shared secret.
#[must_use = "a verifier does nothing until a gateway has it"]
pub struct JwtVerifier {
    keys: WatchedFiles<Vec<TokenKey>>,
    issuer: Option<String>,
    audiences: Vec<String>,
    leeway: Duration,
    tenant_claim: Option<String>,
    plan_claim: Option<String>,
}

struct TokenKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The kind of keys in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum JwtKeyFile {
    /// The bytes of a shared secret, at least 32: HS256. Whitespace at the end is not part of it.
    Secret,
    /// An RSA public key in PEM: RS256.
    RsaPem,
    /// A P-256 public key in PEM: ES256.
    EcPem,
    /// A JSON Web Key Set of any of these.
    Jwks,
}

impl JwtVerifier {
    /// Accepts tokens that a key in this file has signed. The file is read again when it changes.
    pub fn from_file(path: impl Into<PathBuf>, kind: JwtKeyFile) -> Result<Self, FileLoadError> {
        let keys = WatchedFiles::load(vec![path.into()], move |paths| read_keys(&paths[0], kind))?;
        let (issuer, audiences, leeway) = (None, Vec::new(), Duration::from_secs(60));
        Ok(Self { keys, issuer, audiences, leeway, tenant_claim: None, plan_claim: None })
    }

    /// Accepts only tokens of this issuer.
    pub fn issuer(mut self, issuer: &str) -> Self {
        self.issuer = Some(issuer.to_owned());
        self
    }

    /// Accepts only tokens for this audience, or for another one that was added.
    pub fn audience(mut self, audience: &str) -> Self {
        self.audiences.push(audience.to_owned());
        self
    }

    /// Tolerates clocks that differ by this much. One minute by default.
    pub const fn leeway(mut self, leeway: Duration) -> Self {
        self.leeway = leeway;
        self
    }

    /// Reads the tenant's id from this claim.
    pub fn tenant_claim(mut self, claim: &str) -> Self {
        self.tenant_claim = Some(claim.to_owned());
        self
    }

    /// Reads the tenant's plan from this claim.
    pub fn plan_claim(mut self, claim: &str) -> Self {
        self.plan_claim = Some(claim.to_owned());
        self
    }

    pub(crate) fn refresh(&self) {
        self.keys.refresh();
    }

    /// The caller that the token names, at `now`. The tenant's plan is looked up here, once per request.
    pub(super) fn verify(
        &self,
        token: &str,
        attempt: AuthAttempt<'_>,
        now: Micros,
        policy: &Policy,
    ) -> Result<Caller, AuthError> {
        let claims = self.signed_claims(token, attempt)?;
        self.check_times(&claims, now)?;
        self.check_issuer_and_audience(&claims)?;
        let subject = claim(&claims, "sub").ok_or(AuthError::Invalid("the token names no subject"))?;
        check_identity(subject, SUBJECT_ERRORS)?;
        let principal = Some(subject.to_owned());
        Ok(Caller { tenant: self.tenant(&claims, policy)?, principal, key_in_bearer: false })
    }

    fn signed_claims(&self, token: &str, attempt: AuthAttempt<'_>) -> Result<Map<String, Value>, AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::Invalid("the token is too long"));
        }
        let header =
            jsonwebtoken::decode_header(token).map_err(|_| AuthError::Invalid("the token cannot be read"))?;
        // A verifier must refuse critical extensions that it does not know (RFC 7515, 4.1.11), and this one knows none.
        if header.crit.is_some() {
            return Err(AuthError::Invalid("the token has a critical extension that is not supported"));
        }
        let keys = self.keys.now();
        let fits = |key: &&TokenKey| {
            let same_id = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            key.algorithm == header.alg && same_id
        };
        let (mut fitting, mut claims) = (keys.iter().filter(fits).peekable(), None);
        // Only a signature that would be checked counts against the address.
        if fitting.peek().is_some() {
            let is_signed = || {
                claims = fitting.find_map(|key| {
                    let only = signature_only(key.algorithm);
                    jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &only).ok()
                });
                claims.is_some()
            };
            let checked = attempt.guesses.check_signed(attempt.address, token.as_bytes(), is_signed);
            checked.map_err(|_| AuthError::TooManyGuesses)?;
        }
        claims.map(|token| token.claims).ok_or(AuthError::Invalid("the token is not signed by a known key"))
    }

    fn check_times(&self, claims: &Map<String, Value>, now: Micros) -> Result<(), AuthError> {
        let now = now.get() as f64 / 1e6;
        let leeway = self.leeway.as_secs_f64();
        let moment = |claim: &str| claims.get(claim).map(|value| value.as_f64().unwrap_or(f64::NAN));
        // A time that is not a number becomes NaN, for which both comparisons are false, so the token is refused.
        match moment("exp") {
            None => return Err(AuthError::Invalid("the token does not say when it expires")),
            Some(expiry) if expiry + leeway > now => {}
            Some(_) => return Err(AuthError::Invalid("the token has expired")),
        }
        match moment("nbf") {
            None => Ok(()),
            Some(start) if start - leeway <= now => Ok(()),
            Some(_) => Err(AuthError::Invalid("the token is not valid yet")),
        }
    }

    fn check_issuer_and_audience(&self, claims: &Map<String, Value>) -> Result<(), AuthError> {
        if self.issuer.is_some() && self.issuer.as_deref() != claim(claims, "iss") {
            return Err(AuthError::Invalid("the token is from another issuer"));
        }
        let ours =
            |name: &Value| name.as_str().is_some_and(|name| self.audiences.iter().any(|own| own == name));
        let meant = match claims.get("aud") {
            Some(Value::Array(names)) => names.iter().any(ours),
            Some(name) => ours(name),
            None => false,
        };
        if self.audiences.is_empty() || meant {
            Ok(())
        } else {
            Err(AuthError::Invalid("the token is for another audience"))
        }
    }

    fn tenant(
        &self,
        claims: &Map<String, Value>,
        policy: &Policy,
    ) -> Result<Option<CallerTenant>, AuthError> {
        let id = self.tenant_claim.as_deref().and_then(|name| claim(claims, name));
        if let Some(id) = id {
            check_identity(id, TENANT_ERRORS)?;
        }
        let plan = self.plan_claim.as_deref().and_then(|name| claim(claims, name));
        Ok(id.map(|id| policy.tenant_of_claim(id, plan)))
    }
}

impl std::fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtVerifier").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c str> {
    claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Refuses names that could not be a key of a limit.
fn check_identity(name: &str, [control, long]: [&'static str; 2]) -> Result<(), AuthError> {
    match Key::new(name) {
        Ok(_) => Ok(()),
        Err(KeyError::Control { .. }) => Err(AuthError::Invalid(control)),
        Err(_) => Err(AuthError::Invalid(long)),
    }
}

/// Checks the signature only. Times, issuer and audience are checked above, by the gateway's own clock.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

fn read_keys(path: &Path, kind: JwtKeyFile) -> Result<Vec<TokenKey>, FileLoadError> {
    let bytes = fs::read(path).map_err(|why| FileLoadError::new(path, why))?;
    let wrong = |why: jsonwebtoken::errors::Error| FileLoadError::new(path, why);
    let one = |algorithm, key| vec![TokenKey { id: None, algorithm, key }];
    match kind {
        JwtKeyFile::Secret => {
            let secret = bytes.trim_ascii_end();
            check_secret_length(path, "the secret", secret.len())?;
            Ok(one(Algorithm::HS256, DecodingKey::from_secret(secret)))
        }
        JwtKeyFile::RsaPem => Ok(one(Algorithm::RS256, DecodingKey::from_rsa_pem(&bytes).map_err(wrong)?)),
        JwtKeyFile::EcPem => Ok(one(Algorithm::ES256, DecodingKey::from_ec_pem(&bytes).map_err(wrong)?)),
        JwtKeyFile::Jwks => read_key_set(path, &bytes),
    }
}

/// Whether the key may be used to verify signatures with this algorithm. A key without that information is accepted.
fn is_for_signing(jwk: &Jwk, algorithm: KeyAlgorithm) -> bool {
    let (named, usage) = (jwk.common.key_algorithm, jwk.common.public_key_use.as_ref());
    named.is_none_or(|named| named == algorithm)
        && usage.is_none_or(|usage| *usage == PublicKeyUse::Signature)
}

fn check_secret_length(path: &Path, what: &str, bytes: usize) -> Result<(), FileLoadError> {
    if bytes >= MIN_SECRET_BYTES {
        return Ok(());
    }
    let why = format!("{what} has {bytes} bytes; HS256 takes {MIN_SECRET_BYTES} or more (RFC 7518, 3.2)");
    Err(FileLoadError::new(path, why))
}

/// The keys of a set whose algorithm is supported. Other keys may be for other services and are skipped.
fn read_key_set(path: &Path, bytes: &[u8]) -> Result<Vec<TokenKey>, FileLoadError> {
    let set: JwkSet = serde_json::from_slice(bytes).map_err(|why| FileLoadError::new(path, why))?;
    let mut keys = Vec::new();
    for jwk in &set.keys {
        let (algorithm, own) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(_) => (Algorithm::ES256, KeyAlgorithm::ES256),
            AlgorithmParameters::OctetKey(_) => (Algorithm::HS256, KeyAlgorithm::HS256),
            _ => continue,
        };
        let (true, Ok(key)) = (is_for_signing(jwk, own), DecodingKey::from_jwk(jwk)) else { continue };
        let id = jwk.common.key_id.clone();
        if let AlgorithmParameters::OctetKey(secret) = &jwk.algorithm {
            let name = id.as_deref().map_or("a key".to_owned(), |id| format!("the key `{id}`"));
            // The value is valid base64, in which four letters encode three bytes.
            check_secret_length(path, &name, secret.value.len() * 3 / 4)?;
        }
        keys.push(TokenKey { id, algorithm, key });
    }
    if keys.is_empty() {
        Err(FileLoadError::new(path, "the set holds no RSA, P-256 or shared key"))
    } else {
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use spile_listener::GuessLimiter;
    use spile_testkit::fuzz::fuzz;

    use super::*;

    const SECRET: &[u8] = b"a shared secret of 32 bytes or more";
    const NOW_S: u64 = 1_800_000_000;

    /// A verifier for tokens of the secret, and a policy without tenants.
    fn verifier() -> (JwtVerifier, Policy) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        fs::write(&path, SECRET).expect("the folder is ours");
        let jwt = JwtVerifier::from_file(path, JwtKeyFile::Secret).expect("a secret");
        let jwt = jwt.issuer("https://issuer.test").audience("scores").tenant_claim("org").plan_claim("tier");
        (jwt, Policy::builder().build().expect("a policy"))
    }

    /// Verifies a token of an address that has forged none.
    fn verify(jwt: &JwtVerifier, token: &str, now: Micros, policy: &Policy) -> Result<Caller, AuthError> {
        let attempt = AuthAttempt { address: [192, 0, 2, 1].into(), guesses: &GuessLimiter::default() };
        jwt.verify(token, attempt, now, policy)
    }

    #[test]
    fn fuzzed_tokens_are_accepted_in_the_one_spelling_that_was_signed() {
        let ((jwt, policy), key) = (verifier(), EncodingKey::from_secret(SECRET));
        fuzz("jwt", &["eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJub25lIn0", ".", "=", "-", "_"], |bytes| {
            let Ok(token) = std::str::from_utf8(bytes) else { return Err(None::<AuthError>) };
            let caller = verify(&jwt, token, Micros::new(NOW_S * 1_000_000), &policy).map_err(Some)?;
            let (signed, signature) = token.rsplit_once('.').expect("three parts");
            let expected = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::HS256);
            assert_eq!(expected.as_deref().ok(), Some(signature), "{token}");
            Ok(caller.tenant.is_some())
        });
    }

    #[test]
    fn fuzzed_claims_are_accepted_in_time_from_the_issuer_for_the_audience_alone() {
        let ((jwt, policy), key) = (verifier(), EncodingKey::from_secret(SECRET));
        let words =
            ["\"exp\":1800000000", "\"nbf\":", "\"aud\":[\"scores\"]", "\"sub\":\"\"", "1e400", "null"];
        fuzz("jwt-claims", &words, |bytes| {
            let Ok(claims) = serde_json::from_slice::<Map<String, Value>>(bytes) else {
                return Err(None::<AuthError>);
            };
            let token =
                jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).expect("it is signed");
            let caller = verify(&jwt, &token, Micros::new(NOW_S * 1_000_000), &policy).map_err(Some)?;
            let number = |name: &str| claims.get(name).and_then(Value::as_f64);
            assert!(number("exp").is_some_and(|end| end + 60.0 > NOW_S as f64));
            assert!(
                !claims.contains_key("nbf")
                    || number("nbf").is_some_and(|start| start - 60.0 <= NOW_S as f64)
            );
            assert_eq!(claims["iss"], "https://issuer.test");
            assert!(claims["aud"].to_string().contains("\"scores\""), "{claims:?}");
            assert_eq!(caller.principal.as_deref(), claims["sub"].as_str());
            assert!(caller.principal.is_some_and(|name| !name.is_empty()));
            Ok(caller.tenant.is_some())
        });
    }
}
