//! What listeners put up with and how they are reached, as it was typed.

use super::place::Spot;
use super::section::Section;
use super::tables::{Text, Texts};

/// `[listen]`: addresses, and what holds for all but the gateway.
#[derive(Debug, Default)]
pub(crate) struct ListenFile {
    pub(crate) http: Text,
    pub(crate) admin: Text,
    pub(crate) grpc: Text,
    pub(crate) resp: Text,
    pub(crate) gateway: Text,
    pub(crate) hosts: Texts,
    pub(crate) bounds: BoundsFile,
}

/// The bounds of a listener, in `[listen]` and `[gateway]`.
#[derive(Debug, Default)]
pub(crate) struct BoundsFile {
    pub(crate) max_connections: Option<Spot<u64>>,
    pub(crate) max_header_bytes: Text,
    pub(crate) max_header_fields: Option<Spot<u64>>,
    pub(crate) max_streams: Option<Spot<u64>>,
    pub(crate) header_timeout: Text,
    pub(crate) write_timeout: Text,
    pub(crate) handshake_timeout: Text,
    pub(crate) drain_timeout: Text,
}

/// `[http]`: the decision API's listener.
#[derive(Debug, Default)]
pub(crate) struct HttpFile {
    pub(crate) tls: Option<TlsFile>,
}

/// `[http.tls]`, `[admin.tls]` and so on: the certificate that clients see, and who vouches for theirs.
#[derive(Debug)]
pub(crate) struct TlsFile {
    pub(crate) certificate: Text,
    pub(crate) key: Text,
    pub(crate) client_ca: Text,
}

impl ListenFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self {
            http: section.text("http"),
            admin: section.text("admin"),
            grpc: section.text("grpc"),
            resp: section.text("resp"),
            gateway: section.text("gateway"),
            hosts: section.texts("hosts"),
            bounds: BoundsFile::read(&mut section),
        };
        section.end();
        read
    }
}

impl BoundsFile {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            max_connections: section.whole("max_connections"),
            max_header_bytes: section.size("max_header_bytes"),
            max_header_fields: section.whole("max_header_fields"),
            max_streams: section.whole("max_streams"),
            header_timeout: section.text("header_timeout"),
            write_timeout: section.text("write_timeout"),
            handshake_timeout: section.text("handshake_timeout"),
            drain_timeout: section.text("drain_timeout"),
        }
    }
}

impl HttpFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let read = Self { tls: section.table("tls").map(TlsFile::read) };
        section.end();
        read
    }
}

impl TlsFile {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let (chain, key) = (section.text("certificate_file"), section.text("key_file"));
        let read = Self {
            certificate: section.required("certificate_file", chain),
            key: section.required("key_file", key),
            client_ca: section.text("client_ca_file"),
        };
        section.end();
        read
    }
}
