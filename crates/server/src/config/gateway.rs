//! Settings of the whole gateway: its bounds, its certificate, and the tokens that it accepts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spile_gateway::{
    AccessLogFormat, AccessLogSettings, Bounds, DetachedBounds, JwtKeyFile, JwtVerifier, Tls,
    UpstreamTlsFiles,
};

use super::LogFormat;
use super::bounds::BoundsSpec;
use super::route::{Refusals, RefusalsSpec, RouteFiles, UpstreamTlsSpec};
use super::source::{Faults, Location};
use super::tls::{TlsConfig, TlsSpec};
use super::value::{RequestSpan, Size, TextOrTexts, share_or_none, table, within};

/// `[gateway]`, apart from the bounds that it has in common with `[listen]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GatewaySpec {
    #[serde(deserialize_with = "table")]
    tls: Option<TlsSpec>,
    #[serde(deserialize_with = "table")]
    jwt: Option<JwtSpec>,
    #[serde(deserialize_with = "table")]
    refusals: Option<RefusalsSpec>,
    #[serde(deserialize_with = "table")]
    access_log: Option<AccessLogSpec>,
    upstream_ca_file: Option<PathBuf>,
    upstream_certificate_file: Option<PathBuf>,
    upstream_key_file: Option<PathBuf>,
    #[serde(with = "Size::<64, 65_536>")]
    max_uri_bytes: usize,
    // HTTP/2 begins with windows of 64 KiB.
    #[serde(with = "Size::<65_536, 16_777_216>")]
    stream_window: u32,
    /// The most exchanges that continue without their client.
    max_detached: Option<usize>,
    #[serde(deserialize_with = "within::<1, 1_000_000, _, _>")]
    max_detached_per_caller: usize,
    #[serde(with = "RequestSpan")]
    detached_timeout: Duration,
}

/// `[gateway.jwt]`: which tokens are accepted, and how they are read.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct JwtSpec {
    key_file: Option<PathBuf>,
    #[serde(with = "KeysWord")]
    keys: JwtKeyFile,
    issuer: Option<String>,
    /// The accepted audiences, of which a token must have one. An empty list accepts every audience.
    audience: TextOrTexts,
    /// The clock skew that is tolerated.
    #[serde(with = "RequestSpan")]
    leeway: Duration,
    tenant_claim: Option<String>,
    plan_claim: Option<String>,
}

/// `[gateway.access_log]`: the destination and format of a line for each request. There is no access log without this table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AccessLogSpec {
    /// By default that of the process's log.
    format: Option<LogFormat>,
    /// By default the standard output.
    file: Option<PathBuf>,
    /// The share of requests that are logged.
    #[serde(deserialize_with = "share_or_none")]
    sample: f64,
    query: bool,
}

/// The kind of keys in a file.
#[derive(Deserialize, Serialize)]
#[serde(remote = "JwtKeyFile", rename_all = "lowercase")]
#[non_exhaustive]
enum KeysWord {
    Jwks,
    /// HS256
    Secret,
    /// RS256
    #[serde(rename = "rsa")]
    RsaPem,
    /// ES256
    #[serde(rename = "ec")]
    EcPem,
}

/// Settings of all routes.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// The bounds of the listener.
    pub bounds: Bounds,
    /// The bounds of exchanges that continue without their client.
    pub detached: DetachedBounds,
    /// The certificate that clients see; plain HTTP if `None`.
    pub tls: Option<TlsConfig>,
    /// The tokens that are accepted. `None` if no tokens are.
    pub jwt: Option<JwtConfig>,
    /// The TLS files for `https://` upstreams of routes that name no others.
    pub upstream_tls: UpstreamTlsFiles,
    pub(crate) refusals: Refusals,
    /// `None` if there is no access log.
    pub(crate) access_log: Option<AccessLogSpec>,
}

/// The tokens that are accepted.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    pub(super) spec: JwtSpec,
    pub(crate) verifier: Arc<JwtVerifier>,
}

impl Default for GatewaySpec {
    fn default() -> Self {
        Self::from(&GatewayConfig::default())
    }
}

impl Default for JwtSpec {
    fn default() -> Self {
        Self {
            key_file: None,
            keys: JwtKeyFile::Jwks,
            issuer: None,
            audience: TextOrTexts::Many(Vec::new()),
            leeway: Duration::from_secs(60),
            tenant_claim: None,
            plan_claim: None,
        }
    }
}

impl Default for AccessLogSpec {
    fn default() -> Self {
        let AccessLogSettings { sample, query, .. } = AccessLogSettings::default();
        Self { format: None, file: None, sample, query }
    }
}

impl AccessLogSpec {
    /// The settings. The format is by default that of the process's log.
    pub(crate) fn settings(&self, log: LogFormat) -> AccessLogSettings {
        let mut settings = AccessLogSettings::default();
        settings.format = match self.format.unwrap_or(log) {
            LogFormat::Text => AccessLogFormat::Text,
            LogFormat::Json => AccessLogFormat::Json,
        };
        settings.file.clone_from(&self.file);
        (settings.sample, settings.query) = (self.sample, self.query);
        settings
    }
}

impl From<&GatewayConfig> for GatewaySpec {
    fn from(config: &GatewayConfig) -> Self {
        let UpstreamTlsFiles { ca_file, certificate_file, key_file, .. } = config.upstream_tls.clone();
        Self {
            tls: config.tls.as_ref().map(TlsSpec::from),
            jwt: config.jwt.as_ref().map(|jwt| jwt.spec.clone()),
            refusals: config.refusals.spec.clone(),
            access_log: config.access_log.clone(),
            upstream_ca_file: ca_file,
            upstream_certificate_file: certificate_file,
            upstream_key_file: key_file,
            max_uri_bytes: config.bounds.uri_bytes,
            stream_window: config.bounds.stream_window,
            max_detached: config.detached.total,
            max_detached_per_caller: config.detached.per_caller,
            detached_timeout: config.detached.timeout,
        }
    }
}

impl GatewayConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(
        spec: GatewaySpec,
        bounds_spec: &BoundsSpec,
        folder: &Path,
        files: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Self {
        let at = Location::FILE.key("gateway");
        let mut bounds = bounds_spec.apply(Bounds::default());
        (bounds.uri_bytes, bounds.stream_window) = (spec.max_uri_bytes, spec.stream_window);
        if let Some(most) = spec.max_detached.filter(|most| !(1..=bounds.connections).contains(most)) {
            let message = format!("{most} is out of bounds");
            let right = format_args!("1 to {}, which is `max_connections`", bounds.connections);
            faults.add(&at.key("max_detached"), message, right);
        }
        let mut detached = DetachedBounds::default();
        (detached.total, detached.per_caller) = (spec.max_detached, spec.max_detached_per_caller);
        detached.timeout = spec.detached_timeout;
        let upstream_tls = UpstreamTlsSpec {
            ca_file: spec.upstream_ca_file,
            certificate_file: spec.upstream_certificate_file,
            key_file: spec.upstream_key_file,
            server_name: None,
        };
        Self {
            bounds,
            detached,
            tls: TlsConfig::load(spec.tls, &at, Tls::HTTP, folder, faults),
            jwt: spec.jwt.and_then(|jwt| JwtConfig::check(jwt, &at.key("jwt"), folder, faults)),
            upstream_tls: files.check_usual(&upstream_tls, &at, faults),
            refusals: Refusals::check(spec.refusals, &at.key("refusals"), files, faults),
            access_log: spec
                .access_log
                .map(|log| AccessLogSpec { file: log.file.map(|file| folder.join(file)), ..log }),
        }
    }
}

impl JwtConfig {
    fn check(mut spec: JwtSpec, at: &Location<'_>, folder: &Path, faults: &mut Faults) -> Option<Self> {
        let key_file = folder.join(faults.required(at, "key_file", spec.key_file.take())?);
        let verifier = JwtVerifier::from_file(&key_file, spec.keys);
        let wrong = |why| faults.add(&at.key("key_file"), why, "a file that holds the keys");
        let mut verifier = verifier.map_err(wrong).ok()?.leeway(spec.leeway);
        verifier = spec.issuer.iter().fold(verifier, |verifier, issuer| verifier.issuer(issuer));
        for (_, name) in spec.audience.each(at) {
            verifier = verifier.audience(name);
        }
        verifier = spec.tenant_claim.iter().fold(verifier, |verifier, claim| verifier.tenant_claim(claim));
        verifier = spec.plan_claim.iter().fold(verifier, |verifier, claim| verifier.plan_claim(claim));
        Some(Self { spec: JwtSpec { key_file: Some(key_file), ..spec }, verifier: Arc::new(verifier) })
    }
}
