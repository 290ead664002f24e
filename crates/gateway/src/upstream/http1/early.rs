//! A response that arrives before the whole request has been sent.
//!
//! The rest of the request is sent by a separate task. If it were sent only while the client reads the response, a
//! client that sends everything before it reads anything would deadlock.

use std::future::poll_fn;

use spile_listener::IdleTimer;
use tokio::io::{AsyncWriteExt, ReadHalf, split};
use tokio::task::AbortHandle;

use super::connection::Http1Connection;
use super::request_writer::{RequestWriter, SendError};
use super::transport::UpstreamIo;
use crate::forward::body::Upload;

/// The reading side of a connection whose request is still being sent. Dropping it stops the sending.
#[derive(Debug)]
pub(super) struct EarlyResponse {
    pub(super) reader: ReadHalf<UpstreamIo>,
    pub(super) idle: IdleTimer,
    sending: AbortHandle,
}

impl Drop for EarlyResponse {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

pub(super) fn send_rest(
    connection: Http1Connection,
    mut request: RequestWriter,
    mut upload: Upload,
) -> EarlyResponse {
    let (reader, mut writer) = split(connection.transport);
    let sending = tokio::spawn(async move {
        let sent = poll_fn(|cx| request.poll(cx, &mut writer, &mut upload, || {})).await;
        if let Err(SendError::Upload(_)) = sent {
            // Without a shutdown, the upstream would wait for the rest of the body.
            let _told = writer.shutdown().await;
        }
    });
    EarlyResponse { reader, idle: connection.idle, sending: sending.abort_handle() }
}
