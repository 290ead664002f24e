//! The field names of a minute's hash: `r:a:login` counts what the rule `login` allowed.

use spile_observe::{GroupBy, OutcomeCounts};

/// The fields of these counts, without those that are zero.
pub(super) fn fields(by: GroupBy, name: &str, counts: OutcomeCounts) -> impl Iterator<Item = (String, u64)> {
    let by = match by {
        GroupBy::Rule => 'r',
        GroupBy::Tenant => 't',
    };
    let counts = [('a', counts.allowed), ('d', counts.denied), ('s', counts.shadow)];
    let non_zero = counts.into_iter().filter(|(_, count)| *count > 0);
    non_zero.map(move |(outcome, count)| (format!("{by}:{outcome}:{name}"), count))
}

/// The group and outcome that a field counts. `None` if the field has another format.
pub(super) fn read(field: &str, count: u64) -> Option<(GroupBy, &str, OutcomeCounts)> {
    let (by, rest) = field.split_once(':')?;
    let (outcome, name) = rest.split_once(':')?;
    let by = match by {
        "r" => GroupBy::Rule,
        "t" => GroupBy::Tenant,
        _ => return None,
    };
    let mut counts = OutcomeCounts::default();
    match outcome {
        "a" => counts.allowed = count,
        "d" => counts.denied = count,
        "s" => counts.shadow = count,
        _ => return None,
    }
    Some((by, name, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_reads_back_whatever_the_name_is() {
        let counts = OutcomeCounts { allowed: 3, denied: 2, shadow: 1 };
        for (by, name) in [(GroupBy::Rule, "login"), (GroupBy::Tenant, "a:b:c"), (GroupBy::Rule, "")] {
            let mut sum = OutcomeCounts::default();
            for (field, count) in fields(by, name, counts) {
                let (by_read, name_read, part) = read(&field, count).expect("it was written here");
                assert_eq!((by_read, name_read), (by, name));
                sum += part;
            }
            assert_eq!(sum, counts);
        }
        assert_eq!(fields(GroupBy::Rule, "x", OutcomeCounts::default()).count(), 0);
        assert_eq!(read("x:a:login", 1), None);
        assert_eq!(read("login", 1), None);
    }
}
