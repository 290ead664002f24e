//! The cluster slot of a key.

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a Redis key: of its hash tag if it has one, otherwise of the whole key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

/// Three characters that put a hash tag which begins with `start` into `slot`. Found by trial, in a few thousand short
/// steps.
pub(crate) fn suffix_for_slot(slot: u16, start: &[u8]) -> Option<[u8; 3]> {
    let letters = || (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z');
    let start = crc16(start);
    for first in letters() {
        let after_first = crc16_step(start, first);
        for second in letters() {
            let after_second = crc16_step(after_first, second);
            if let Some(third) = letters().find(|&third| crc16_step(after_second, third) % SLOTS == slot) {
                return Some([first, second, third]);
            }
        }
    }
    None
}

/// CRC-16/XMODEM, as Redis Cluster uses it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc16_step(crc, byte))
}

const fn crc16_step(crc: u16, byte: u8) -> u16 {
    let index = (crc >> 8) ^ byte as u16;
    (crc << 8) ^ TABLE[index as usize & 0xff]
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
    }
}
