//! Header maps, which are large and needed for every request and every answer.

use http::HeaderMap;

use crate::upstream::free_list::Spare;

/// Maps with room for more fields than this are not worth keeping.
const MAX_FIELDS: usize = 96;

thread_local! {
    static SPARE: Spare<HeaderMap> = const { Spare::new() };
}

/// An empty map with room for so many fields.
pub(crate) fn take(fields: usize) -> HeaderMap {
    let mut map = Spare::take(&SPARE).unwrap_or_default();
    map.reserve(fields);
    map
}

/// Keeps the map's room for the next one who needs a map.
pub(crate) fn keep(mut map: HeaderMap) {
    if (1..=MAX_FIELDS).contains(&map.capacity()) {
        map.clear();
        Spare::keep(&SPARE, map);
    }
}

#[cfg(test)]
mod tests {
    use http::header::{HOST, HeaderValue, VIA};

    use super::*;
    use crate::upstream::free_list::MAX_SPARE;

    #[test]
    fn a_map_is_used_again_and_empty() {
        let mut map = take(20);
        let room = map.capacity();
        map.append(HOST, HeaderValue::from_static("a"));
        map.append(VIA, HeaderValue::from_static("b"));
        map.append(VIA, HeaderValue::from_static("c"));
        keep(map);
        let again = take(1);
        assert_eq!((again.capacity(), again.len(), again.get(VIA)), (room, 0, None));
    }

    #[test]
    fn neither_huge_maps_nor_many_are_kept() {
        for fields in [0, 1_000] {
            keep(HeaderMap::with_capacity(fields));
        }
        assert_eq!(Spare::count(&SPARE), 0);
        for _ in 0..4 * MAX_SPARE {
            keep(HeaderMap::with_capacity(8));
        }
        assert_eq!(Spare::count(&SPARE), MAX_SPARE);
    }
}
