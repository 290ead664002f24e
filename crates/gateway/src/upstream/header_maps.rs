//! Recycles header maps, which are large and needed for every request and response.

use http::HeaderMap;

use crate::upstream::free_list::FreeList;

/// Larger maps are not kept.
const MAX_FIELDS: usize = 96;

thread_local! {
    static FREE: FreeList<HeaderMap> = const { FreeList::new() };
}

/// An empty map with room for this many fields.
pub(crate) fn take(fields: usize) -> HeaderMap {
    let mut map = FreeList::take(&FREE).unwrap_or_default();
    map.reserve(fields);
    map
}

/// Keeps the memory of the map for another one.
pub(crate) fn recycle(mut map: HeaderMap) {
    if (1..=MAX_FIELDS).contains(&map.capacity()) {
        map.clear();
        FreeList::keep(&FREE, map);
    }
}

#[cfg(test)]
mod tests {
    use http::header::{HOST, HeaderValue, VIA};

    use super::*;
    use crate::upstream::free_list::MAX_FREE;

    #[test]
    fn a_map_is_used_again_and_empty() {
        let mut map = take(20);
        let room = map.capacity();
        map.append(HOST, HeaderValue::from_static("a"));
        map.append(VIA, HeaderValue::from_static("b"));
        map.append(VIA, HeaderValue::from_static("c"));
        recycle(map);
        let again = take(1);
        assert_eq!((again.capacity(), again.len(), again.get(VIA)), (room, 0, None));
    }

    #[test]
    fn neither_huge_maps_nor_many_are_kept() {
        for fields in [0, 1_000] {
            recycle(HeaderMap::with_capacity(fields));
        }
        assert_eq!(FreeList::count(&FREE), 0);
        for _ in 0..4 * MAX_FREE {
            recycle(HeaderMap::with_capacity(8));
        }
        assert_eq!(FreeList::count(&FREE), MAX_FREE);
    }
}
