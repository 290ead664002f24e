//! Where replies of two connections trade places.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a reply waits for another to trade places with.
const PATIENCE: Duration = Duration::from_millis(20);

/// Holds the reply that waits for a partner, if one does.
#[derive(Debug, Default)]
pub(super) struct Exchange(Mutex<Option<Offer>>);

#[derive(Debug)]
struct Offer {
    reply: Vec<u8>,
    partner: oneshot::Sender<Vec<u8>>,
}

impl Exchange {
    /// Gives `reply` away for another's, or gets it back where no other comes.
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

    /// The waiting reply, in whose place `reply` goes; else where a partner's will arrive.
    fn take_or_offer(&self, reply: Vec<u8>) -> Result<Vec<u8>, oneshot::Receiver<Vec<u8>>> {
        let mut waiting = self.0.lock();
        let reply = match waiting.take() {
            Some(Offer { reply: theirs, partner }) => match partner.send(reply) {
                Ok(()) => return Ok(theirs),
                // Its connection has closed meanwhile.
                Err(reply) => reply,
            },
            None => reply,
        };
        let (partner, offered) = oneshot::channel();
        *waiting = Some(Offer { reply, partner });
        Err(offered)
    }

    /// Takes the offer back. A partner answers while it holds the lock, so where none has, the offer is still there.
    fn withdraw(&self, offered: &mut oneshot::Receiver<Vec<u8>>) -> Vec<u8> {
        let mut waiting = self.0.lock();
        match offered.try_recv() {
            Ok(theirs) => theirs,
            Err(_) => waiting.take().map(|offer| offer.reply).unwrap_or_default(),
        }
    }
}
