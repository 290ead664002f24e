//! An answer that comes before its request is through: each goes its own way.
//!
//! The rest of the request is sent by a task of its own. Were it sent only as the client takes the answer, a client
//! that reads nothing before it has sent everything would wait for itself.

use std::future::poll_fn;

use spile_listener::Idle;
use tokio::io::{AsyncWriteExt, ReadHalf, split};
use tokio::task::AbortHandle;

use super::connection::Http1;
use super::request_writer::{Outgoing, SendError};
use super::transport::Transport;
use crate::forward::body::Upload;

/// The answer's side of a connection whose request is still being sent. That ends when this is dropped.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) reader: ReadHalf<Transport>,
    pub(super) idle: Idle,
    sending: AbortHandle,
}

impl Drop for Early {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

pub(super) fn go_on_sending(line: Http1, mut outgoing: Outgoing, mut upload: Upload) -> Early {
    let (reader, mut writer) = split(line.transport);
    let sending = tokio::spawn(async move {
        let sent = poll_fn(|cx| outgoing.poll(cx, &mut writer, &mut upload, || {})).await;
        if let Err(SendError::Upload(_)) = sent {
            // The upstream waits for what will never come, unless it is told.
            let _told = writer.shutdown().await;
        }
    });
    Early { reader, idle: line.idle, sending: sending.abort_handle() }
}
