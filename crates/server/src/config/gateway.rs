//! What holds for the whole gateway: its certificate, and whose tokens it believes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spile_gateway::JwtKeyFile;

use super::duration;
use super::file::{Faults, GatewayFile, Spot};

/// What holds for all routes.
#[derive(Clone, Debug, Default)]
pub struct GatewayConfig {
    /// The certificate chain and its key, in PEM; plain HTTP where there is none.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whose tokens are believed; nobody's where there is none.
    pub jwt: Option<JwtConfig>,
}

/// Whose tokens are believed, and how they are read.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// The file of keys.
    pub key_file: PathBuf,
    /// What the file holds.
    pub kind: JwtKeyFile,
    /// Who must have issued a token.
    pub issuer: Option<String>,
    /// Whom it must be meant for.
    pub audience: Option<String>,
    /// By how much clocks may be off.
    pub leeway: Duration,
    /// The claim that names the tenant.
    pub tenant_claim: Option<String>,
    /// The claim that names its plan.
    pub plan_claim: Option<String>,
}

impl GatewayConfig {
    /// Relative paths start from the folder of the configuration file.
    pub(super) fn check(file: GatewayFile, folder: &Path, faults: &mut Faults) -> Self {
        let tls = match (file.certificate_file, file.key_file) {
            (Some(chain), Some(key)) => Some((folder.join(chain.value), folder.join(key.value))),
            (Some(lonely), None) | (None, Some(lonely)) => {
                faults.add(
                    &lonely.place,
                    "a certificate and its key stand together",
                    "both `certificate_file` and `key_file`",
                );
                None
            }
            (None, None) => None,
        };
        let text = |text: Option<Spot<String>>| text.map(|text| text.value);
        let leeway = file.jwt_leeway.and_then(|leeway| duration::check(&leeway, duration::REQUEST, faults));
        let kind = file.jwt_keys.and_then(|kind| check_kind(&kind, faults)).unwrap_or(JwtKeyFile::Jwks);
        let jwt = file.jwt_key_file.map(|path| JwtConfig {
            key_file: folder.join(path.value),
            kind,
            issuer: text(file.jwt_issuer),
            audience: text(file.jwt_audience),
            leeway: leeway.unwrap_or(Duration::from_secs(60)),
            tenant_claim: text(file.jwt_tenant_claim),
            plan_claim: text(file.jwt_plan_claim),
        });
        Self { tls, jwt }
    }
}

fn check_kind(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<JwtKeyFile> {
    match value.as_str() {
        "jwks" => Some(JwtKeyFile::Jwks),
        "secret" => Some(JwtKeyFile::Secret),
        "rsa" => Some(JwtKeyFile::RsaPem),
        "ec" => Some(JwtKeyFile::EcPem),
        _ => {
            faults.add(place, format_args!("`{value}` is no kind of key"), "`jwks`, `secret`, `rsa` or `ec`");
            None
        }
    }
}
