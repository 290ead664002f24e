//! Keys, their values and when they expire.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::reply::ErrorText;
use super::sorted_set::SortedSet;

/// The fields of a hash, in the order in which they were set. Linear search, as in a small hash of Redis.
pub(super) type Hash = Vec<(Vec<u8>, Vec<u8>)>;

const WRONG_TYPE: ErrorText =
    ErrorText::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value");

/// The data of a server. Cloning takes a snapshot in constant time; the next write to either then copies the list of keys,
/// and the values that it changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    keys: Rc<BTreeMap<Vec<u8>, Entry>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    stored: Rc<Stored>,
    expires_at_ms: Option<u64>,
}

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stored {
    Text(Vec<u8>),
    Hash(Hash),
    SortedSet(SortedSet),
    List(VecDeque<Vec<u8>>),
}

/// A type of values. A value that becomes empty is deleted with its key.
pub(super) trait Kind: Clone + Default + Into<Stored> {
    fn of(stored: &Stored) -> Option<&Self>;
    fn of_mut(stored: &mut Stored) -> Option<&mut Self>;
    fn has_nothing(&self) -> bool;
}

macro_rules! kind {
    ($type:ty, $variant:ident, $has_nothing:expr) => {
        impl From<$type> for Stored {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }

        impl Kind for $type {
            fn of(stored: &Stored) -> Option<&Self> {
                if let Stored::$variant(value) = stored { Some(value) } else { None }
            }

            fn of_mut(stored: &mut Stored) -> Option<&mut Self> {
                if let Stored::$variant(value) = stored { Some(value) } else { None }
            }

            fn has_nothing(&self) -> bool {
                $has_nothing(self)
            }
        }
    };
}

kind!(Hash, Hash, Self::is_empty);
kind!(SortedSet, SortedSet, |set: &Self| set.len() == 0);
kind!(VecDeque<Vec<u8>>, List, Self::is_empty);

impl Data {
    /// The number of keys, including those that have expired but were not accessed since.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All keys in the order of their bytes, including those that have expired but were not accessed since.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(Vec::as_slice)
    }

    /// Whether a key has expired. It exists in the millisecond of its expiry, like in Redis.
    pub(super) fn has_expired(&self, key: &[u8], now_ms: u64) -> bool {
        self.expires_at_ms(key).is_some_and(|expires_at_ms| expires_at_ms < now_ms)
    }

    pub(super) fn stored(&self, key: &[u8]) -> Option<&Stored> {
        self.keys.get(key).map(|entry| &*entry.stored)
    }

    /// The value of a key, if it exists.
    pub(super) fn read<T: Kind>(&self, key: &[u8]) -> Result<Option<&T>, ErrorText> {
        self.stored(key).map(|stored| T::of(stored).ok_or(WRONG_TYPE)).transpose()
    }

    /// The string of a key, if it exists.
    pub(super) fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, ErrorText> {
        match self.stored(key) {
            None => Ok(None),
            Some(Stored::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    /// Changes the value of a key, which begins empty if the key does not exist.
    pub(super) fn change<T: Kind, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, ErrorText> {
        let Some(entry) = Rc::make_mut(&mut self.keys).get_mut(key) else {
            let mut value = T::default();
            let result = change(&mut value);
            if !value.has_nothing() {
                self.set(key, value.into(), None);
            }
            return Ok(result);
        };
        if T::of(&entry.stored).is_none() {
            return Err(WRONG_TYPE);
        }
        let value = T::of_mut(Rc::make_mut(&mut entry.stored)).ok_or(WRONG_TYPE)?;
        let result = change(value);
        if value.has_nothing() {
            self.remove(key);
        }
        Ok(result)
    }

    pub(super) fn set(&mut self, key: &[u8], stored: Stored, expires_at_ms: Option<u64>) {
        let entry = Entry { stored: Rc::new(stored), expires_at_ms };
        Rc::make_mut(&mut self.keys).insert(key.to_vec(), entry);
    }

    /// Returns whether the key existed.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.keys.contains_key(key) && Rc::make_mut(&mut self.keys).remove(key).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.keys = Rc::default();
    }

    /// When a key expires. `None` if it does not exist or never expires.
    pub(super) fn expires_at_ms(&self, key: &[u8]) -> Option<u64> {
        self.keys.get(key)?.expires_at_ms
    }

    /// Returns whether the key exists.
    pub(super) fn expire(&mut self, key: &[u8], at_ms: u64) -> bool {
        let entry = Rc::make_mut(&mut self.keys).get_mut(key);
        entry.map(|entry| entry.expires_at_ms = Some(at_ms)).is_some()
    }
}
