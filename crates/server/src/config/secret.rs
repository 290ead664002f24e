//! Secrets that the environment or files hold.

use std::io::ErrorKind;
use std::path::Path;

use super::source::{At, Faults};
use crate::secret::Secret;

/// The secret in this variable, or else in this file: a `what` such as a token. `None` if there is neither.
pub(super) fn find(
    what: &str,
    variable: &str,
    variables: &[(String, String)],
    file: Option<(&Path, &At<'_>)>,
    faults: &mut Faults,
) -> Option<Secret> {
    let from_variable = variables.iter().find(|(name, _)| name == variable);
    let (text, at) = match (from_variable, file) {
        (Some((name, text)), _) => (text.clone(), At::variable(name)),
        (None, Some((path, at))) => (read(what, path, at, faults)?, *at),
        (None, None) => return None,
    };
    let wrong = |_| faults.add(&at, format_args!("the {what} is empty"), "`openssl rand -hex 32` makes one");
    Secret::new(&text).map_err(wrong).ok()
}

/// What the file holds, without blanks around it.
///
/// A token may be missing: the admin API then stays closed. Without a password a listener would be open to every client.
pub(super) fn read(what: &str, path: &Path, at: &At<'_>, faults: &mut Faults) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(why) if why.kind() == ErrorKind::NotFound && what == "token" => None,
        Err(why) => {
            let fix = format!("a file that holds the {what}");
            faults.add(at, format_args!("the {what} cannot be read: {why}"), fix);
            None
        }
    }
}
