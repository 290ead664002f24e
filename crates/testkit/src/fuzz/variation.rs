//! Makes another input of those that there are.

/// Bytes at which parsers change their mind.
const TELLING: &[u8] = b"\0\t\n\r \"%&*+,-./0189:;<=>?@AZ[\\]_`az{|}~\x7f\x80\xc0\xff";
/// Changes to one input at most.
const MOST_CHANGES: u64 = 4;

/// Varies inputs, in the same way for the same seed.
pub(super) struct Variation(u64);

impl Variation {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of the inputs, changed in a few places.
    pub(super) fn of(&mut self, pool: &[Vec<u8>], words: &[&str], longest: usize) -> Vec<u8> {
        let mut input = self.choice(pool).clone();
        for _ in 0..=self.below(MOST_CHANGES) {
            self.change(&mut input, pool, words);
        }
        input.truncate(longest);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str]) {
        match self.below(9) {
            0 => self.flip(input),
            1 => self.put(input, &[self.0 as u8]),
            2 => {
                let byte = *self.choice(TELLING);
                self.put(input, &[byte]);
            }
            3 => {
                let range = self.range(input.len());
                input.drain(range);
            }
            4 => {
                let range = self.range(input.len());
                let piece = input[range].to_vec();
                self.insert(input, &piece);
            }
            5 => {
                let other = self.choice(pool);
                let range = self.range(other.len());
                self.insert(input, &other[range]);
            }
            6 => {
                // The beginning of this one and the end of another.
                let (other, at) = (self.choice(pool), self.position(input.len()));
                input.truncate(at);
                let from = self.position(other.len());
                input.extend_from_slice(&other[from..]);
            }
            7 if !words.is_empty() => {
                let word = self.choice(words).as_bytes();
                self.insert(input, word);
            }
            _ => {
                let byte = *self.choice(TELLING);
                let times = 1 << self.below(8);
                self.insert(input, &vec![byte; times]);
            }
        }
    }

    fn flip(&mut self, input: &mut [u8]) {
        let (at, bit) = (self.position(input.len()), self.below(8));
        if let Some(byte) = input.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    /// Overwrites what is there.
    fn put(&mut self, input: &mut [u8], bytes: &[u8]) {
        let at = self.position(input.len());
        for (old, new) in input[at..].iter_mut().zip(bytes) {
            *old = *new;
        }
    }

    fn insert(&mut self, input: &mut Vec<u8>, bytes: &[u8]) {
        let at = self.position(input.len());
        input.splice(at..at, bytes.iter().copied());
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let (one, two) = (self.position(length), self.position(length));
        one.min(two)..one.max(two)
    }

    /// A place in something of this length, its end among them.
    fn position(&mut self, length: usize) -> usize {
        self.below(length as u64 + 1) as usize
    }

    fn choice<'c, T>(&mut self, among: &'c [T]) -> &'c T {
        &among[self.below(among.len() as u64) as usize]
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64: three multiplications, and every seed is a good one.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_varies_in_the_same_way_and_no_input_grows_beyond_its_bound() {
        let pool = [b"GET / HTTP/1.1\r\n".to_vec(), Vec::new()];
        let (mut one, mut other) = (Variation::new(7), Variation::new(7));
        for _ in 0..1_000 {
            let input = one.of(&pool, &["word"], 64);
            assert_eq!(input, other.of(&pool, &["word"], 64));
            assert!(input.len() <= 64);
        }
    }
}
