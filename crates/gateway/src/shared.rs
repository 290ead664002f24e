//! What all workers of a gateway share.

use crate::auth::Authenticator;
use crate::bounds::Bounds;
use crate::forward::Trust;
use crate::limit::Limits;
use crate::route::Table;
use crate::upstream::Dialer;

/// The gateway without its connections.
pub(crate) struct Shared<S> {
    pub(crate) table: Table,
    pub(crate) auth: Authenticator,
    pub(crate) limits: Limits<S>,
    pub(crate) trust: Trust,
    pub(crate) dialer: Dialer,
    pub(crate) bounds: Bounds,
}
