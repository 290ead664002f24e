//! A list that mostly has one element.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A list that holds a single element in place, and several on the heap.
///
/// Most decisions have one limit. A plain `enum`, and not a vector over raw memory: the compiler then sees the one
/// element's fields and need not move them through memory.
#[derive(Clone, PartialEq)]
pub struct Few<T>(Held<T>);

#[derive(Clone, PartialEq)]
enum Held<T> {
    One(T),
    /// None, or more than one.
    Many(Vec<T>),
}

impl<T> Few<T> {
    /// An empty list.
    #[inline]
    pub const fn new() -> Self {
        Self(Held::Many(Vec::new()))
    }

    /// A list of one.
    #[inline]
    pub const fn one(element: T) -> Self {
        Self(Held::One(element))
    }

    /// The element, where it is the only one.
    #[inline]
    pub const fn only(&self) -> Option<&T> {
        match &self.0 {
            Held::One(one) => Some(one),
            Held::Many(_) => None,
        }
    }

    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        match &mut self.0 {
            Held::Many(many) if many.is_empty() => self.0 = Held::One(element),
            Held::Many(many) => many.push(element),
            Held::One(_) => {
                if let Held::One(first) = std::mem::replace(&mut self.0, Held::Many(Vec::new())) {
                    self.0 = Held::Many(vec![first, element]);
                }
            }
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Held::One(one) => std::slice::from_ref(one),
            Held::Many(many) => many,
        }
    }
}

impl<T> DerefMut for Few<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Held::One(one) => std::slice::from_mut(one),
            Held::Many(many) => many,
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        let Some(first) = elements.next() else { return Self::new() };
        let Some(second) = elements.next() else { return Self::one(first) };
        let mut many = Vec::with_capacity(2 + elements.size_hint().0);
        many.extend([first, second]);
        many.extend(elements);
        Self(Held::Many(many))
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self.0 {
            Held::One(one) => (Some(one), Vec::new()),
            Held::Many(many) => (None, many),
        };
        one.into_iter().chain(many)
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
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
            let collected: Few<u32> = vector.iter().copied().collect();
            let mut pushed = Few::new();
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
