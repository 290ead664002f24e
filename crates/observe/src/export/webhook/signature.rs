//! Signs batches of events, so that a receiver with the same secret can check their origin and time.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The secret of a webhook. It is never shown. Equality only serves to detect that an operator has changed it.
#[derive(Clone, Eq, PartialEq)]
pub struct SigningSecret(Vec<u8>);

impl From<&str> for SigningSecret {
    fn from(secret: &str) -> Self {
        Self(secret.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for SigningSecret {
    fn from(secret: Vec<u8>) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The value of `Spile-Signature`: `v1=` and the HMAC-SHA256 of the timestamp, a full stop and the body, in hex.
pub(crate) fn sign(secret: &SigningSecret, timestamp: u64, body: &[u8]) -> String {
    format!("v1={}", hex::encode(mac(secret, timestamp, body).finalize().into_bytes()))
}

/// Whether a signature is valid, for receivers in Rust. Runs in constant time. A receiver should also reject timestamps
/// that are minutes old.
pub fn verify(secret: &SigningSecret, timestamp: u64, body: &[u8], signature: &str) -> bool {
    let Some(digits) = signature.strip_prefix("v1=") else { return false };
    hex::decode(digits).is_ok_and(|tag| mac(secret, timestamp, body).verify_slice(&tag).is_ok())
}

fn mac(secret: &SigningSecret, timestamp: u64, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes a key of any length");
    mac.update(timestamp.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_body_its_time_and_its_secret_alone() {
        let (secret, body) = (SigningSecret::from("s3cret"), b"{}".as_slice());
        let signature = sign(&secret, 1_800_000_000, body);
        assert!(verify(&secret, 1_800_000_000, body, &signature));
        assert!(!verify(&secret, 1_800_000_001, body, &signature));
        assert!(!verify(&secret, 1_800_000_000, b"{ }", &signature));
        assert!(!verify(&SigningSecret::from("other"), 1_800_000_000, body, &signature));
        assert!(!verify(&secret, 1_800_000_000, body, "v1=zz"));
        assert_eq!(format!("{secret:?}"), "Secret(***)");
    }

    /// Compares with the output of `printf '1800000000.{}' | openssl dgst -sha256 -hmac s3cret`.
    #[test]
    fn a_signature_can_be_checked_with_openssl() {
        let signature = sign(&SigningSecret::from("s3cret"), 1_800_000_000, b"{}");
        assert_eq!(signature, OPENSSL);
    }

    const OPENSSL: &str = "v1=1cd77f07c7f231a8a17cd9bc413e578ccb209c24eb17a0577ce1eb9218a4f3ed";
}
