//! How the count of one rule or tenant is named in a minute: `r:a:login` is what the rule `login` allowed.

use spile_observe::{By, Tally};

/// Which way decisions went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Allowed,
    Denied,
    Shadow,
}

impl Way {
    const ALL: [(char, Self); 3] = [('a', Self::Allowed), ('d', Self::Denied), ('s', Self::Shadow)];
}

/// The fields of a tally and their counts, without those that are zero.
pub(super) fn fields(by: By, name: &str, tally: Tally) -> impl Iterator<Item = (String, u64)> {
    let by = letter(by);
    Way::ALL.into_iter().filter_map(move |(way, which)| {
        let count = of(tally, which);
        (count > 0).then(|| (format!("{by}:{way}:{name}"), count))
    })
}

/// What a field counts; nothing where it is none of ours.
pub(super) fn read(field: &str, count: u64) -> Option<(By, &str, Tally)> {
    let (by, rest) = field.split_once(':')?;
    let (way, name) = rest.split_once(':')?;
    let by = match by {
        "r" => By::Rule,
        "t" => By::Tenant,
        _ => return None,
    };
    let mut tally = Tally::default();
    match way {
        "a" => tally.allowed = count,
        "d" => tally.denied = count,
        "s" => tally.shadow = count,
        _ => return None,
    }
    Some((by, name, tally))
}

const fn letter(by: By) -> char {
    match by {
        By::Rule => 'r',
        By::Tenant => 't',
    }
}

const fn of(tally: Tally, way: Way) -> u64 {
    match way {
        Way::Allowed => tally.allowed,
        Way::Denied => tally.denied,
        Way::Shadow => tally.shadow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_reads_back_whatever_the_name_is() {
        let tally = Tally { allowed: 3, denied: 2, shadow: 1 };
        for (by, name) in [(By::Rule, "login"), (By::Tenant, "a:b:c"), (By::Rule, "")] {
            let mut sum = Tally::default();
            for (field, count) in fields(by, name, tally) {
                let (by_read, name_read, part) = read(&field, count).expect("it was written here");
                assert_eq!((by_read, name_read), (by, name));
                sum += part;
            }
            assert_eq!(sum, tally);
        }
        assert_eq!(fields(By::Rule, "x", Tally::default()).count(), 0);
        assert_eq!(read("x:a:login", 1), None);
        assert_eq!(read("login", 1), None);
    }
}
