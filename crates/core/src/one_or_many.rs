//! A list that usually has one element.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A list that stores a single element in place, and several on the heap.
///
/// Most decisions have one limit. It is a plain `enum` instead of a vector over raw memory, because the compiler then sees the
/// fields of the single element and does not move them through memory.
#[derive(Clone, Eq, PartialEq)]
pub struct OneOrMany<T>(Repr<T>);

#[derive(Clone, Eq, PartialEq)]
enum Repr<T> {
    One(T),
    /// Empty, or more than one element.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// An empty list.
    #[inline]
    pub const fn new() -> Self {
        Self(Repr::Many(Vec::new()))
    }

    /// A list of one element.
    #[inline]
    pub const fn one(element: T) -> Self {
        Self(Repr::One(element))
    }

    /// The element, if it is the only one.
    #[inline]
    pub const fn only(&self) -> Option<&T> {
        match &self.0 {
            Repr::One(one) => Some(one),
            Repr::Many(_) => None,
        }
    }

    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        match &mut self.0 {
            Repr::Many(many) if !many.is_empty() => many.push(element),
            repr => {
                *repr = match std::mem::replace(repr, Repr::Many(Vec::new())) {
                    Repr::One(first) => Repr::Many(vec![first, element]),
                    Repr::Many(_) => Repr::One(element),
                };
            }
        }
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Repr::One(one) => std::slice::from_ref(one),
            Repr::Many(many) => many,
        }
    }
}

impl<T> DerefMut for OneOrMany<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Repr::One(one) => std::slice::from_mut(one),
            Repr::Many(many) => many,
        }
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        let Some(first) = elements.next() else { return Self::new() };
        let Some(second) = elements.next() else { return Self::one(first) };
        let mut many = Vec::with_capacity(2 + elements.size_hint().0);
        many.extend([first, second]);
        many.extend(elements);
        Self(Repr::Many(many))
    }
}

impl<T> IntoIterator for OneOrMany<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self.0 {
            Repr::One(one) => (Some(one), Vec::new()),
            Repr::Many(many) => (None, many),
        };
        one.into_iter().chain(many)
    }
}

impl<'a, T> IntoIterator for &'a OneOrMany<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for OneOrMany<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_vector_would() {
        for count in 0..5 {
            let vector: Vec<u32> = (0..count).collect();
            let collected: OneOrMany<u32> = vector.iter().copied().collect();
            let mut pushed = OneOrMany::new();
            for &element in &vector {
                pushed.push(element);
            }
            assert_eq!(*collected, *vector);
            assert_eq!(*pushed, *vector);
            assert_eq!(pushed, collected);
            assert_eq!(pushed.only(), if count == 1 { vector.first() } else { None });
            assert_eq!(pushed.into_iter().collect::<Vec<_>>(), vector);
        }
    }
}
