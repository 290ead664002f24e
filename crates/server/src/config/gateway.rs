//! What holds for the whole gateway: what it puts up with, its certificate, and whose word it takes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use humantime::format_duration as span;
use spile_gateway::{Bounds, JwtKeyFile, JwtVerifier, Tls, UpstreamTlsFiles};

use super::bounded::{self, show_size};
use super::file::{Faults, GatewayFile, JwtFile, Spot, TextOrTexts, UpstreamTlsFile};
use super::quoted::{Quoted, QuotedList};
use super::route::{RefusalWords, RouteFiles};
use super::tls::TlsConfig;
use super::{bounds, duration};

/// What holds for all routes.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// What the listener puts up with.
    pub bounds: Bounds,
    /// The certificate that clients see; plain HTTP where there is none.
    pub tls: Option<TlsConfig>,
    /// Whose tokens are believed; nobody's where there is none.
    pub jwt: Option<JwtConfig>,
    /// How routes meet `https://` upstreams that say nothing else.
    pub upstream_tls: UpstreamTlsFiles,
    pub(crate) refusals: RefusalWords,
}

/// Whose tokens are believed, and how they are read.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// The file of keys.
    pub key_file: PathBuf,
    /// What the file holds.
    pub keys: JwtKeyFile,
    /// Who must have issued a token.
    pub issuer: Option<String>,
    /// Whom it must be meant for: any of these, or anybody where there is none.
    pub audience: Vec<String>,
    /// By how much clocks may be off.
    pub leeway: Duration,
    /// The claim that names the tenant.
    pub tenant_claim: Option<String>,
    /// The claim that names its plan.
    pub plan_claim: Option<String>,
    pub(crate) verifier: Arc<JwtVerifier>,
}

impl GatewayConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        mut file: GatewayFile,
        folder: &Path,
        files: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Self {
        let tls = TlsConfig::check(file.tls.take(), Tls::HTTP, folder, faults);
        let jwt = file.jwt.take().and_then(|jwt| JwtConfig::check(jwt, folder, faults));
        let upstream_tls = UpstreamTlsFile {
            ca_file: file.upstream_ca_file.take(),
            certificate_file: file.upstream_certificate_file.take(),
            key_file: file.upstream_key_file.take(),
            server_name: None,
        };
        let upstream_tls = files.check_usual(&upstream_tls, faults);
        let refusals = RefusalWords::check(file.refusals.take(), files, faults);
        Self { bounds: check_bounds(file, faults), tls, jwt, upstream_tls, refusals }
    }
}

impl JwtConfig {
    fn check(file: JwtFile, folder: &Path, faults: &mut Faults) -> Option<Self> {
        let text = |text: Option<Spot<String>>| text.map(|text| text.value);
        let leeway = file.leeway.and_then(|leeway| duration::check(&leeway, duration::REQUEST, faults));
        let leeway = leeway.unwrap_or(Duration::from_secs(60));
        let keys = file.keys.and_then(|keys| check_keys(&keys, faults)).unwrap_or(JwtKeyFile::Jwks);
        let audience = match file.audience.map(|audience| audience.value) {
            None => Vec::new(),
            Some(TextOrTexts::Text(one)) => vec![one],
            Some(TextOrTexts::Texts(several)) => several.into_iter().map(|name| name.value).collect(),
        };
        let (issuer, tenant_claim) = (text(file.issuer), text(file.tenant_claim));
        let plan_claim = text(file.plan_claim);
        let path = file.key_file?;
        let key_file = folder.join(path.value);
        let verifier = JwtVerifier::from_file(&key_file, keys);
        let verifier =
            verifier.map_err(|why| faults.add(&path.place, why, "a file that holds the keys")).ok()?;
        let mut verifier = verifier.leeway(leeway);
        verifier = issuer.iter().fold(verifier, |verifier, issuer| verifier.issuer(issuer));
        verifier = audience.iter().fold(verifier, |verifier, name| verifier.audience(name));
        verifier = tenant_claim.iter().fold(verifier, |verifier, claim| verifier.tenant_claim(claim));
        verifier = plan_claim.iter().fold(verifier, |verifier, claim| verifier.plan_claim(claim));
        let verifier = Arc::new(verifier);
        Some(Self { key_file, keys, issuer, audience, leeway, tenant_claim, plan_claim, verifier })
    }
}

fn check_bounds(file: GatewayFile, faults: &mut Faults) -> Bounds {
    let mut bounds = bounds::check(Bounds::default(), file.bounds, faults);
    let uri = bounded::check_size(file.max_uri_bytes, 64..=64 << 10, faults);
    bounds.uri_bytes = uri.map_or(bounds.uri_bytes, |bytes| bytes as usize);
    // HTTP/2 begins with windows of 64 KiB.
    let window = bounded::check_size(file.stream_window, 64 << 10..=16 << 20, faults);
    bounds.stream_window = window.map_or(bounds.stream_window, |bytes| bytes as u32);
    bounds
}

const KINDS: [(&str, JwtKeyFile); 4] = [
    ("jwks", JwtKeyFile::Jwks),
    ("secret", JwtKeyFile::Secret),
    ("rsa", JwtKeyFile::RsaPem),
    ("ec", JwtKeyFile::EcPem),
];

fn check_keys(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<JwtKeyFile> {
    let found = KINDS.into_iter().find(|(name, _)| name == value);
    if found.is_none() {
        let message = format!("`{value}` is no kind of keys");
        faults.add(place, message, "`jwks`, `secret` (HS256), `rsa` (RS256) or `ec` (ES256)");
    }
    found.map(|(_, kind)| kind)
}

/// As a file would have it.
impl fmt::Display for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = &self.bounds;
        writeln!(f, "[gateway]")?;
        bounds::show(bounds, f)?;
        writeln!(f, "max_uri_bytes = \"{}\"", show_size(bounds.uri_bytes as u64))?;
        writeln!(f, "stream_window = \"{}\"", show_size(bounds.stream_window.into()))?;
        let UpstreamTlsFiles { ca_file, certificate_file, key_file, .. } = &self.upstream_tls;
        for (key, path) in [("ca", ca_file), ("certificate", certificate_file), ("key", key_file)] {
            if let Some(path) = path {
                writeln!(f, "upstream_{key}_file = {}", Quoted(path.display()))?;
            }
        }
        self.refusals.show(f)?;
        writeln!(f)?;
        if let Some(tls) = &self.tls {
            tls.show("gateway", f)?;
        }
        self.jwt.as_ref().map_or(Ok(()), |jwt| jwt.fmt(f))
    }
}

impl fmt::Display for JwtConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = KINDS.into_iter().find(|(_, kind)| *kind == self.keys).map_or("jwks", |(name, _)| name);
        writeln!(f, "[gateway.jwt]\nkey_file = {}\nkeys = \"{kind}\"", Quoted(self.key_file.display()))?;
        writeln!(f, "audience = {}\nleeway = \"{}\"", QuotedList(&self.audience), span(self.leeway))?;
        let named = [
            ("issuer", &self.issuer),
            ("tenant_claim", &self.tenant_claim),
            ("plan_claim", &self.plan_claim),
        ];
        for (key, value) in named {
            if let Some(value) = value {
                writeln!(f, "{key} = {}", Quoted(value))?;
            }
        }
        writeln!(f)
    }
}
