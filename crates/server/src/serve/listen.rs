//! The sockets that the server answers on, bound before anything else starts.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::config::Listen;

/// One bound socket per listener. Port 0 takes a free port, as tests do.
#[derive(Debug)]
pub struct Listeners {
    /// The decision API and the sample endpoint.
    pub http: TcpListener,
    /// Health and metrics.
    pub admin: TcpListener,
    /// Envoy's rate limit service, if it is enabled.
    pub grpc: Option<TcpListener>,
    /// The Redis protocol, if it is enabled.
    pub resp: Option<TcpListener>,
    /// The reverse proxy, if it is enabled.
    pub gateway: Option<TcpListener>,
}

impl Listeners {
    /// Binds every listener, or none.
    pub async fn bind(listen: &Listen) -> Result<Self, BindError> {
        let grpc = bind_if("grpc", listen.grpc).await?;
        let resp = bind_if("resp", listen.resp).await?;
        let gateway = bind_if("gateway", listen.gateway).await?;
        let (http, admin) = (bind("http", listen.http).await?, bind("admin", listen.admin).await?);
        Ok(Self { http, admin, grpc, resp, gateway })
    }
}

async fn bind_if(
    listener: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, BindError> {
    match address {
        Some(address) => bind(listener, address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(listener: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|why| BindError { listener, address, why })
}

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for {listener}: {why}; free it, or choose another with --{listener} ADDR"
)]
pub struct BindError {
    listener: &'static str,
    address: SocketAddr,
    why: io::Error,
}
