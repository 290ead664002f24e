//! Swaps replies of two connections.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a reply waits for another one.
const PATIENCE: Duration = Duration::from_millis(20);

/// The reply that waits for another one, if any.
#[derive(Debug, Default)]
pub(super) struct ReplyExchange(Mutex<Option<Offer>>);

#[derive(Debug)]
struct Offer {
    reply: Vec<u8>,
    partner: oneshot::Sender<Vec<u8>>,
}

impl ReplyExchange {
    /// Swaps `reply` for one of another connection, or returns it if no other arrives in time.
    pub(super) async fn trade(&self, reply: Vec<u8>) -> Vec<u8> {
        let mut offered = match self.take_or_offer(reply) {
            Ok(theirs) => return theirs,
            Err(offered) => offered,
        };
        match timeout(PATIENCE, &mut offered).await {
            Ok(Ok(theirs)) => theirs,
            _ => self.withdraw(&mut offered),
        }
    }

    /// The waiting reply, which is swapped for `reply`. `Err` holds the channel on which a later one arrives.
    fn take_or_offer(&self, reply: Vec<u8>) -> Result<Vec<u8>, oneshot::Receiver<Vec<u8>>> {
        let mut waiting = self.0.lock();
        let reply = match waiting.take() {
            Some(Offer { reply: theirs, partner }) => match partner.send(reply) {
                Ok(()) => return Ok(theirs),
                // Its connection was closed meanwhile.
                Err(reply) => reply,
            },
            None => reply,
        };
        let (partner, offered) = oneshot::channel();
        *waiting = Some(Offer { reply, partner });
        Err(offered)
    }

    /// Withdraws the offer. A partner answers while it holds the lock, so an unanswered offer is still there.
    fn withdraw(&self, offered: &mut oneshot::Receiver<Vec<u8>>) -> Vec<u8> {
        let mut waiting = self.0.lock();
        match offered.try_recv() {
            Ok(theirs) => theirs,
            Err(_) => waiting.take().map(|offer| offer.reply).unwrap_or_default(),
        }
    }
}
