//! Secrets that the environment or files hold.

use std::path::Path;

use super::source::{Faults, Location};
use crate::secret::Secret;

/// The secret in this variable, or else in this file: a `what` such as a token. `None` if there is neither.
pub(super) fn find(
    what: &str,
    variable: &str,
    variables: &[(String, String)],
    file: Option<(&Path, &Location<'_>)>,
    faults: &mut Faults,
) -> Option<Secret> {
    let from_variable = variables.iter().find(|(name, _)| name == variable);
    let (text, at) = match (from_variable, file) {
        (Some((name, text)), _) => (text.clone(), Location::variable(name)),
        (None, Some((path, at))) => (read(what, path, at, faults)?, *at),
        (None, None) => return None,
    };
    let wrong = |_| faults.add(&at, format_args!("the {what} is empty"), "`openssl rand -hex 32` makes one");
    Secret::new(&text).map_err(wrong).ok()
}

/// The content of the file, without blanks around it. A missing file is a fault, because access would be open without the secret.
pub(super) fn read(what: &str, path: &Path, at: &Location<'_>, faults: &mut Faults) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(why) => {
            let (fix, path) = (format!("a file that holds the {what}"), path.display());
            faults.add(at, format_args!("the {what} cannot be read from {path}: {why}"), fix);
            None
        }
    }
}
