//! The common part of `spile tenant`, `spile plan` and `spile rule`: the registry of a running server.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::admin::AdminArgs;
use super::print;
use crate::input::segment;

/// The most bytes that a file with an entry may have. The server takes no more.
const MOST_BYTES: u64 = 1 << 20;

/// An entry in a file.
#[derive(Args, Debug)]
pub(super) struct EntryFile {
    /// Reads all of it from this file, as `show --json` prints it; `-` for stdin.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

impl EntryFile {
    /// The entry of the file, or else of the flags.
    pub(super) fn or(&self, flags: impl FnOnce() -> anyhow::Result<Value>) -> anyhow::Result<Value> {
        let Some(path) = &self.file else { return flags() };
        let name = path.display();
        let mut text = String::new();
        let read = if path.as_os_str() == "-" {
            std::io::stdin().take(MOST_BYTES).read_to_string(&mut text)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text))
        };
        read.with_context(|| format!("cannot read {name}"))?;
        let mut entry: Value =
            serde_json::from_str(&text).with_context(|| format!("{name} holds no JSON object"))?;
        if let Some(members) = entry.as_object_mut() {
            // Members that `show` adds.
            members.retain(|member, _| !["source", "apiKeyCount"].contains(&member.as_str()));
        }
        Ok(entry)
    }
}

/// Lists a kind as a table.
pub(super) fn list<const N: usize>(
    admin: &AdminArgs,
    kind: &str,
    header: [&str; N],
    rows: impl Fn(&Value) -> Vec<[String; N]>,
) -> anyhow::Result<()> {
    let answer = admin.get(&format!("/admin/v1/{kind}"))?;
    admin.print(&answer, || {
        let rows: Vec<_> = answer[kind].as_array().into_iter().flatten().flat_map(rows).collect();
        print::table(header, &rows)
    })
}

/// Shows one entry, a line for each member.
pub(super) fn show(admin: &AdminArgs, kind: &str, name: &str) -> anyhow::Result<()> {
    let entry = admin.get(&format!("/admin/v1/{kind}/{}", segment(name)))?;
    admin.print(&entry, || {
        let members = entry.as_object().into_iter().flatten();
        let row = |(member, value): (&String, &Value)| [member.clone(), shown(value)];
        let rows: Vec<_> = members.filter(|(_, value)| !value.is_null()).map(row).collect();
        let text = print::table(["", ""], &rows);
        // The header is empty.
        text.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned())
    })
}

/// Creates or replaces the entry of that name.
pub(super) fn put(admin: &AdminArgs, kind: &str, name: &str, entry: &Value) -> anyhow::Result<()> {
    let path = format!("/admin/v1/{kind}/{}", segment(name));
    let answer = admin.client().demand(Method::PUT, &path, Some(entry))?;
    admin.print(&answer, || format!("{} {name} is in force", kind.trim_end_matches('s')))?;
    admin.warn_of_loss();
    Ok(())
}

pub(super) fn remove(admin: &AdminArgs, kind: &str, name: &str) -> anyhow::Result<()> {
    admin.client().demand(Method::DELETE, &format!("/admin/v1/{kind}/{}", segment(name)), None)?;
    admin.print(&json!({"removed": name}), || format!("removed {name}"))
}

/// A value as people read it: a text without quotes, a list with commas, a table as `key=value`.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| format!("{name}={}", shown(value));
            members.iter().map(member).collect::<Vec<_>>().join(" ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
