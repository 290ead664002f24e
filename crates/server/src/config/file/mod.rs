//! The configuration as it was typed, in a file and in the environment. Holds it; checks only types and keys.

mod environment;
mod fault;
mod gateway;
mod listen;
mod node;
mod pieces;
mod place;
mod registry;
mod routes;
mod section;
mod tables;
mod usual;

use std::path::Path;

pub use self::environment::NotText;
pub(crate) use self::environment::environment;
pub(in crate::config) use self::environment::near_misses;
pub use self::fault::ConfigError;
pub(crate) use self::fault::Faults;
pub(super) use self::gateway::{GatewayFile, JwtFile};
pub(super) use self::listen::{BoundsFile, HttpFile, ListenFile, TlsFile};
use self::node::{Node, Table};
pub(crate) use self::place::{Place, Spot};
pub(super) use self::routes::{
    AdaptiveFile, ConcurrencyFile, HeadersFile, HealthFile, RefusalFile, RefusalsFile, RouteFile,
    UpstreamTlsFile,
};
pub(super) use self::section::TextOrTexts;
use self::section::{ROOT, Section};
pub(super) use self::tables::{
    AdminFile, ClientsFile, ForwardAuthFile, GrpcFile, LimitFile, MatchFile, ObserveFile, PlanFile, RespFile,
    RuleFile, StoreFile, TenantFile, WebhookFile,
};

pub(super) use self::usual::{PASS, UNMATCHED};
use crate::registry::Overlay;

/// A whole file as it was typed.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) unmatched: Option<Spot<String>>,
    pub(super) listen: ListenFile,
    pub(super) http: HttpFile,
    pub(super) store: StoreFile,
    pub(super) admin: AdminFile,
    pub(super) grpc: GrpcFile,
    pub(super) resp: RespFile,
    pub(super) clients: ClientsFile,
    pub(super) forward_auth: ForwardAuthFile,
    pub(super) plans: Vec<PlanFile>,
    pub(super) rules: Vec<RuleFile>,
    pub(super) tenants: Vec<TenantFile>,
    pub(super) gateway: GatewayFile,
    pub(super) routes: Vec<RouteFile>,
    pub(super) observe: ObserveFile,
    pub(super) webhooks: Vec<WebhookFile>,
}

impl ConfigFile {
    /// Reads the text, overridden by these environment variables and entries of the registry, and notes whatever is
    /// wrong.
    pub(super) fn read(
        text: &str,
        variables: &[(String, String)],
        overlay: &Overlay,
        faults: &mut Faults,
    ) -> Self {
        let mut table: Table = pieces::parse(text, faults);
        environment::overlay_top(&mut table, variables);
        usual::complete(&mut table);
        environment::overlay(&mut table, variables);
        registry::overlay(&mut table, overlay);
        let whole = Spot::new(Node::Table(table), Place::File(0..0));
        let mut file = Section::new(ROOT, whole, faults);
        let read = Self {
            listen: file.table("listen").map(ListenFile::read).unwrap_or_default(),
            http: file.table("http").map(HttpFile::read).unwrap_or_default(),
            store: file.table("store").map(StoreFile::read).unwrap_or_default(),
            admin: file.table("admin").map(AdminFile::read).unwrap_or_default(),
            grpc: file.table("grpc").map(GrpcFile::read).unwrap_or_default(),
            resp: file.table("resp").map(RespFile::read).unwrap_or_default(),
            clients: file.table("clients").map(ClientsFile::read).unwrap_or_default(),
            forward_auth: file.table("forward_auth").map(ForwardAuthFile::read).unwrap_or_default(),
            plans: PlanFile::read_all(file.named("plans").unwrap_or_default(), file.faults()),
            rules: RuleFile::read_all("rules", file.tables("rules").unwrap_or_default(), file.faults()),
            tenants: TenantFile::read_all(file.tables("tenants").unwrap_or_default(), file.faults()),
            gateway: file.table("gateway").map(GatewayFile::read).unwrap_or_default(),
            routes: RouteFile::read_all(file.tables("routes").unwrap_or_default(), file.faults()),
            observe: file.table("observe").map(ObserveFile::read).unwrap_or_default(),
            webhooks: WebhookFile::read_all(file.tables("webhooks").unwrap_or_default(), file.faults()),
            unmatched: file.text(usual::UNMATCHED),
        };
        file.end();
        read
    }
}

/// A file that cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration in {path}: {why}")]
pub struct Unreadable {
    path: String,
    why: std::io::Error,
}

impl Unreadable {
    pub(super) fn new(path: &Path, why: std::io::Error) -> Self {
        Self { path: path.display().to_string(), why }
    }
}
