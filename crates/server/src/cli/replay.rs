//! `spile replay`: what a configuration would have done to the requests of an access log.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use http::HeaderName;
use spile_policy::canonical_host;

use super::print;
use crate::config::{self, Config};
use crate::replay::line::{JsonFields, LogField};
use crate::replay::{Replay, ReplayReport, picture};

/// Which log, under which configuration, and how to show it.
#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    /// The logs, in the order of their times. `-` is the standard input. Common, combined and JSON lines are recognized, and so
    /// is gzip.
    #[arg(value_name = "ACCESSLOG", required = true)]
    logs: Vec<PathBuf>,
    /// The configuration to try. Several are compared.
    #[arg(long = "config", value_name = "FILE", env = "SPILE_CONFIG", required = true)]
    configs: Vec<PathBuf>,
    /// The field of JSON lines that has a fact: `time`, `address`, `method`, `uri`, `request`, `host`, `user` or `tenant`. A
    /// dot leads into an object: `--field time=event.start`.
    #[arg(long = "field", value_name = "FACT=NAME")]
    fields: Vec<FieldName>,
    /// The field of JSON lines that has the value of a header, for rules that key by it: `--header x-api-key=api_key`.
    #[arg(long = "header", value_name = "HEADER=NAME")]
    headers: Vec<HeaderField>,
    /// The host of requests whose lines have none.
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Option<String>,
    /// Decides requests of one second at its start if the log has no fractions of seconds, and does not spread them over it.
    #[arg(long)]
    no_spread: bool,
    /// How many keys are listed.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
    /// Writes each request that is limited to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws the report into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Writes the report to this file, as a page of HTML.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The field that has a fact.
#[derive(Clone, Debug)]
struct FieldName(LogField, String);

/// The field that has the value of a header.
#[derive(Clone, Debug)]
struct HeaderField(HeaderName, String);

impl ReplayArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        for file in [&self.csv, &self.svg, &self.html].into_iter().flatten() {
            self.refuse_input(file)?;
        }
        let report = self.replay()?.run()?;
        if let Some(file) = &self.svg {
            write(file, &picture::drawing(&report))?;
        }
        if let Some(file) = &self.html {
            write(file, &picture::page(&report))?;
        }
        self.print(&report)
    }

    fn replay(&self) -> anyhow::Result<Replay> {
        let variables = config::environment()?;
        let load = |path: &PathBuf| -> anyhow::Result<(String, Config)> {
            Ok((path.display().to_string(), Config::load(path, variables.clone())?))
        };
        let facts = self.fields.iter().map(|FieldName(field, name)| (*field, name.clone())).collect();
        let headers = self.headers.iter().map(|HeaderField(header, name)| (header.clone(), name.clone()));
        Ok(Replay {
            logs: self.logs.clone(),
            configs: self.configs.iter().map(load).collect::<anyhow::Result<_>>()?,
            fields: JsonFields::new(facts, headers.collect()),
            headers: self.headers.iter().map(|HeaderField(header, _)| header.clone()).collect(),
            host: self.host.as_deref().unwrap_or_default().into(),
            spread: !self.no_spread,
            top: self.top.into(),
            csv: self.csv.clone(),
        })
    }

    fn print(&self, report: &ReplayReport) -> anyhow::Result<()> {
        if self.json {
            return print::line(serde_json::to_string(report)?);
        }
        print::all(report)
    }

    /// Refuses to overwrite a log or a configuration.
    fn refuse_input(&self, output: &Path) -> anyhow::Result<()> {
        let Ok(output) = fs::canonicalize(output) else { return Ok(()) };
        for input in self.logs.iter().chain(&self.configs) {
            let is_other = fs::canonicalize(input).is_ok_and(|input| input != output);
            ensure!(is_other || !input.exists(), "{} is read, and cannot be written to", output.display());
        }
        Ok(())
    }
}

impl FromStr for FieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (fact, name) = pair(text)?;
        let known = || {
            let names: Vec<String> = LogField::value_variants()
                .iter()
                .filter_map(|field| Some(field.to_possible_value()?.get_name().to_owned()))
                .collect();
            names.join(", ")
        };
        let field = LogField::from_str(fact, false)
            .map_err(|_| format!("there is no fact `{fact}`: write one of {}", known()))?;
        Ok(Self(field, name.to_owned()))
    }
}

impl FromStr for HeaderField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (header, name) = pair(text)?;
        let header = header.parse().map_err(|_| format!("`{header}` is not the name of a header"))?;
        Ok(Self(header, name.to_owned()))
    }
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    let pair = text.split_once('=').filter(|(left, right)| !left.is_empty() && !right.is_empty());
    pair.ok_or_else(|| "write a name, `=` and the name of a JSON field".to_owned())
}

fn host(text: &str) -> Result<String, String> {
    let host = canonical_host(text).map(|host| host.to_string());
    host.ok_or_else(|| "is not a host, as in `api.example.com`".to_owned())
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
