//! The header fields that a route changes.

use spile_gateway::{HeaderChangeError, HeaderChanges};

use super::spec::HeadersSpec;
use crate::config::source::{Faults, Location};
use crate::config::value::each;

impl HeadersSpec {
    pub(super) fn check(&self, at: &Location<'_>, faults: &mut Faults) {
        for (at, name) in each(&self.remove, &at.key("remove")) {
            report_faults(HeaderChanges::default().remove(name), &at, &at, faults);
        }
        for (key, fields) in [("set", &self.set), ("add", &self.add)] {
            for (name, value) in fields {
                let fields = at.key(key);
                let field = fields.key(name);
                report_faults(HeaderChanges::default().set(name, value), &field.spelling(), &field, faults);
            }
        }
    }
}

/// The changes in the gateway's type.
pub(super) fn changes(spec: Option<&HeadersSpec>) -> Result<HeaderChanges, HeaderChangeError> {
    let mut changes = HeaderChanges::default();
    let Some(HeadersSpec { set, add, remove }) = spec else { return Ok(changes) };
    for name in remove {
        changes = changes.remove(name)?;
    }
    for (name, value) in set {
        changes = changes.set(name, value)?;
    }
    for (name, value) in add {
        changes = changes.add(name, value)?;
    }
    Ok(changes)
}

fn report_faults(
    change: Result<HeaderChanges, HeaderChangeError>,
    name: &Location<'_>,
    value: &Location<'_>,
    faults: &mut Faults,
) {
    match change {
        Ok(_) => {}
        Err(why @ HeaderChangeError::Value(_)) => faults.add(value, why, "visible text on one line"),
        Err(why) => faults.add(name, why, "for instance `x-frame-options`"),
    }
}
