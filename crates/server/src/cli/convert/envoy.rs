//! The file of Envoy's rate limit service: a domain and a tree of descriptors.

use std::collections::HashSet;

use smol_str::SmolStr;
use spile_calendar::Period;

use super::yaml::{YamlError, YamlKind, YamlNode};

/// One file: the limits of a domain.
#[derive(Debug)]
pub(super) struct EnvoyDomain {
    /// The name of the file.
    pub(super) file: SmolStr,
    pub(super) name: String,
    pub(super) descriptors: Vec<EnvoyDescriptor>,
    /// Unknown keys of the file, with their lines.
    pub(super) unknown: Vec<(usize, String)>,
}

/// One descriptor of the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvoyDescriptor {
    pub(super) file: SmolStr,
    pub(super) line: usize,
    pub(super) key: String,
    /// `None` if any value matches.
    pub(super) value: Option<String>,
    pub(super) limit: Option<EnvoyLimit>,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) share_threshold: bool,
    pub(super) children: Vec<EnvoyDescriptor>,
    /// Unknown keys, with their lines.
    pub(super) unknown: Vec<(usize, String)>,
}

/// A limit of a descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvoyLimit {
    pub(super) amount: EnvoyAmount,
    pub(super) name: Option<String>,
    pub(super) replaces: Vec<String>,
    /// Unknown keys, with their lines.
    pub(super) unknown: Vec<(usize, String)>,
}

/// How much a limit allows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum EnvoyAmount {
    #[default]
    Unlimited,
    /// At most `requests` in this number of units of time.
    Per { requests: u32, unit: EnvoyUnit, units: u32 },
}

/// A unit of time: a period of the calendar, or `None` for a second.
pub(super) type EnvoyUnit = Option<Period>;

/// A file that Envoy's service would reject, too.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{why}")]
pub(super) struct EnvoyFileError {
    file: String,
    why: YamlError,
}

impl EnvoyDomain {
    pub(super) fn read(file: &str, text: &str) -> Result<Self, EnvoyFileError> {
        let refused = |why| EnvoyFileError { file: file.to_owned(), why };
        let root = YamlNode::read(text).map_err(refused)?;
        let root = root.ok_or_else(|| refused(YamlError::new(1, "the file is empty")))?;
        Self::of(file, root).map_err(refused)
    }

    fn of(file: &str, root: YamlNode) -> Result<Self, YamlError> {
        let line = root.line;
        let file = SmolStr::new(file);
        let mut domain = Self { file, name: String::new(), descriptors: Vec::new(), unknown: Vec::new() };
        for (key, node) in members(root, "the file")? {
            match key.as_str() {
                "domain" => domain.name = text(node, "domain")?,
                "descriptors" => domain.descriptors = descriptors(node, &domain.file)?,
                _ => domain.unknown.push((node.line, key)),
            }
        }
        if domain.name.is_empty() {
            return Err(YamlError::new(line, "the file has no `domain`"));
        }
        Ok(domain)
    }
}

fn descriptors(node: YamlNode, file: &SmolStr) -> Result<Vec<EnvoyDescriptor>, YamlError> {
    let items = list(node, "descriptors")?.into_iter();
    let found: Vec<_> = items.map(|node| descriptor(node, file)).collect::<Result<_, _>>()?;
    let mut known = HashSet::new();
    for one in &found {
        if !known.insert((&one.key, &one.value)) {
            let value =
                one.value.as_ref().map(|value| format!(" and the value `{value}`")).unwrap_or_default();
            let why = format!("the descriptor with the key `{}`{value} is defined twice", one.key);
            return Err(YamlError::new(one.line, why));
        }
    }
    Ok(found)
}

fn descriptor(node: YamlNode, file: &SmolStr) -> Result<EnvoyDescriptor, YamlError> {
    let line = node.line;
    let mut found = EnvoyDescriptor { file: file.clone(), line, ..EnvoyDescriptor::default() };
    for (key, node) in members(node, "a descriptor")? {
        match key.as_str() {
            "key" => found.key = text(node, "key")?,
            "value" => found.value = Some(text(node, "value")?).filter(|value| !value.is_empty()),
            "rate_limit" if node.is_null() => {}
            "rate_limit" => {
                let mut limit = limit(node)?;
                found.unknown.append(&mut limit.unknown);
                found.limit = Some(limit);
            }
            "descriptors" => found.children = descriptors(node, file)?,
            "shadow_mode" => found.shadow = flag(node, "shadow_mode")?,
            "quota_mode" => found.quota = flag(node, "quota_mode")?,
            "share_threshold" => found.share_threshold = flag(node, "share_threshold")?,
            _ => found.unknown.push((node.line, key)),
        }
    }
    if found.key.is_empty() {
        return Err(YamlError::new(line, "a descriptor has no `key`"));
    }
    Ok(found)
}

fn limit(node: YamlNode) -> Result<EnvoyLimit, YamlError> {
    let line = node.line;
    let mut found = EnvoyLimit::default();
    let (mut requests, mut unit, mut units, mut unlimited) = (0, None, 1, false);
    for (key, node) in members(node, "rate_limit")? {
        let at = node.line;
        match key.as_str() {
            "requests_per_unit" => requests = number(node, "requests_per_unit")?,
            "unit" => unit = Some((at, text(node, "unit")?)),
            "unit_multiplier" => units = number(node, "unit_multiplier")?,
            "unlimited" => unlimited = flag(node, "unlimited")?,
            "name" => found.name = Some(text(node, "name")?).filter(|name| !name.is_empty()),
            "replaces" => found.replaces = replaces(node)?,
            _ => found.unknown.push((at, key)),
        }
    }
    if found.name.as_ref().is_some_and(|name| found.replaces.contains(name)) {
        return Err(YamlError::new(line, "a limit replaces itself"));
    }
    found.amount = match unit {
        _ if units == 0 => return Err(YamlError::new(line, "`unit_multiplier` is 0; it takes 1 or more")),
        Some((at, _)) if unlimited => {
            return Err(YamlError::new(at, "a limit that is `unlimited` has no `unit`"));
        }
        None if unlimited => EnvoyAmount::Unlimited,
        None => return Err(YamlError::new(line, "the limit has no `unit`")),
        Some((at, word)) => {
            let unit = match word.to_ascii_lowercase().as_str() {
                "second" => None,
                lower => Some(lower.parse::<Period>().map_err(|_| not_a_unit(at, &word))?),
            };
            EnvoyAmount::Per { requests, unit, units }
        }
    };
    Ok(found)
}

fn not_a_unit(line: usize, word: &str) -> YamlError {
    let units = "`second`, `minute`, `hour`, `day`, `week`, `month` or `year`";
    YamlError::new(line, format!("`{word}` is not a unit: write {units}"))
}

fn replaces(node: YamlNode) -> Result<Vec<String>, YamlError> {
    let name = |node: YamlNode| {
        let line = node.line;
        let named = members(node, "replaces")?.into_iter().find(|(key, _)| key == "name");
        let name = named.map(|(_, node)| text(node, "name")).transpose()?.unwrap_or_default();
        if name.is_empty() {
            Err(YamlError::new(line, "`replaces` takes a list of `name`s"))
        } else {
            Ok(name)
        }
    };
    list(node, "replaces")?.into_iter().map(name).collect()
}

fn members(node: YamlNode, what: &str) -> Result<Vec<(String, YamlNode)>, YamlError> {
    match node.kind {
        YamlKind::Mapping(members) => Ok(members),
        _ => Err(YamlError::new(node.line, format!("{what} is not a mapping"))),
    }
}

fn list(node: YamlNode, key: &str) -> Result<Vec<YamlNode>, YamlError> {
    if node.is_null() {
        return Ok(Vec::new());
    }
    match node.kind {
        YamlKind::List(items) => Ok(items),
        _ => Err(YamlError::new(node.line, format!("`{key}` is not a list"))),
    }
}

fn text(node: YamlNode, key: &str) -> Result<String, YamlError> {
    if node.is_null() {
        return Ok(String::new());
    }
    match node.kind {
        YamlKind::Scalar { text, .. } => Ok(text),
        _ => Err(YamlError::new(node.line, format!("`{key}` is not a text"))),
    }
}

fn number(node: YamlNode, key: &str) -> Result<u32, YamlError> {
    let line = node.line;
    let text = text(node, key)?;
    let plain: String = text.chars().filter(|digit| *digit != '_').collect();
    plain
        .parse()
        .map_err(|_| YamlError::new(line, format!("`{key}` is `{text}`; it takes 0 to {}", u32::MAX)))
}

fn flag(node: YamlNode, key: &str) -> Result<bool, YamlError> {
    let line = node.line;
    let text = text(node, key)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" | "" => Ok(false),
        _ => Err(YamlError::new(line, format!("`{key}` is `{text}`; it takes `true` or `false`"))),
    }
}
