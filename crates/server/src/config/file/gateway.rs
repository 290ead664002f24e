//! `[gateway]` as it was typed: what holds for all routes.

use super::listen::{BoundsFile, TlsFile};
use super::place::Spot;
use super::routes::RefusalsFile;
use super::section::{Section, TextOrTexts};
use super::tables::Text;

/// `[gateway]`: what the listener puts up with, its certificate, and whose word is believed.
#[derive(Debug, Default)]
pub(crate) struct GatewayFile {
    pub(crate) tls: Option<TlsFile>,
    pub(crate) jwt: Option<JwtFile>,
    pub(crate) refusals: Option<RefusalsFile>,
    pub(crate) upstream_ca_file: Text,
    pub(crate) upstream_certificate_file: Text,
    pub(crate) upstream_key_file: Text,
    pub(crate) max_uri_bytes: Text,
    pub(crate) stream_window: Text,
    pub(crate) bounds: BoundsFile,
}

/// `[gateway.jwt]`: whose tokens are believed.
#[derive(Debug)]
pub(crate) struct JwtFile {
    pub(crate) key_file: Text,
    pub(crate) keys: Text,
    pub(crate) issuer: Text,
    pub(crate) audience: Option<Spot<TextOrTexts>>,
    pub(crate) leeway: Text,
    pub(crate) tenant_claim: Text,
    pub(crate) plan_claim: Text,
}

impl GatewayFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            tls: section.table("tls").map(TlsFile::read),
            jwt: section.table("jwt").map(JwtFile::read),
            refusals: section.table("refusals").map(RefusalsFile::read),
            upstream_ca_file: section.text("upstream_ca_file"),
            upstream_certificate_file: section.text("upstream_certificate_file"),
            upstream_key_file: section.text("upstream_key_file"),
            max_uri_bytes: section.size("max_uri_bytes"),
            stream_window: section.size("stream_window"),
            bounds: BoundsFile::read(&mut section),
        };
        section.end();
        read
    }
}

impl JwtFile {
    fn read(mut section: Section<'_>) -> Self {
        let key_file = section.text("key_file");
        let read = Self {
            key_file: section.required("key_file", key_file),
            keys: section.text("keys"),
            issuer: section.text("issuer"),
            audience: section.text_or_texts("audience"),
            leeway: section.text("leeway"),
            tenant_claim: section.text("tenant_claim"),
            plan_claim: section.text("plan_claim"),
        };
        section.end();
        read
    }
}
