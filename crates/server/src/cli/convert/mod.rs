//! `spile convert`: turns limits of another program into a configuration.

mod envoy;
mod rules;
mod yaml;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};

use self::envoy::EnvoyDomain;
use self::rules::{Conversion, ConversionOptions};
use super::outcome::CommandOutcome;
use super::print;

/// Formats that can be converted.
#[derive(Debug, Subcommand)]
pub(super) enum ConvertCommand {
    /// Reads the YAML of Envoy's rate limit service (envoyproxy/ratelimit).
    ///
    /// The configuration goes to the standard output, and what it cannot say to the standard error. The exit code is 1 if there is
    /// anything that it cannot say, and 2 if a file is wrong.
    Envoy(EnvoyArgs),
}

/// Input and output.
#[derive(Args, Debug)]
pub(super) struct EnvoyArgs {
    /// Files, or folders with files that end in `.yaml` or `.yml`. `-` is the standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Writes the configuration to this file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Counts in windows of the calendar as the service does, and not in buckets that fill evenly.
    #[arg(long)]
    windows: bool,
    /// Marks rules with this key as `late`: Envoy reports their hits when the work is done (`apply_on_stream_done`).
    #[arg(long = "late", value_name = "KEY")]
    late_keys: Vec<String>,
}

impl ConvertCommand {
    pub(super) fn run(self) -> anyhow::Result<CommandOutcome> {
        match self {
            Self::Envoy(args) => args.run(),
        }
    }
}

impl EnvoyArgs {
    fn run(self) -> anyhow::Result<CommandOutcome> {
        let mut domains = Vec::new();
        for file in all_files(&self.files)? {
            if let Some(output) = &self.output {
                refuse_input(&file, output)?;
            }
            domains.push(EnvoyDomain::read(&file.display().to_string(), &text_of(&file)?)?);
        }
        let options = ConversionOptions { windows: self.windows, late_keys: self.late_keys };
        let conversion = Conversion::of(&domains, &options)?;
        match &self.output {
            Some(file) => fs::write(file, conversion.to_string())
                .with_context(|| format!("cannot write {}", file.display()))?,
            None => print::all(&conversion)?,
        }
        for note in conversion.notes() {
            print::warning(&note.to_string());
        }
        let is_whole = conversion.notes().is_empty();
        Ok(if is_whole { CommandOutcome::Done } else { CommandOutcome::Incomplete })
    }
}

/// Lists the files. A folder is replaced by the YAML files in it, sorted by name.
fn all_files(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let cannot_list = || format!("cannot list {}", path.display());
        let entries: Vec<_> = fs::read_dir(path).and_then(Iterator::collect).with_context(cannot_list)?;
        let mut found: Vec<PathBuf> = entries.into_iter().map(|entry: fs::DirEntry| entry.path()).collect();
        found.retain(|path| path.extension().is_some_and(|end| end == "yaml" || end == "yml"));
        ensure!(!found.is_empty(), "{} has no file that ends in .yaml or .yml", path.display());
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Reads a file, unless it is too large.
fn text_of(file: &Path) -> anyhow::Result<String> {
    let cannot_read = || format!("cannot read {}", file.display());
    let mut text = String::new();
    let most = yaml::MAX_BYTES as u64;
    if file == Path::new("-") {
        io::stdin().lock().take(most + 1).read_to_string(&mut text).with_context(cannot_read)?;
    } else {
        let opened = fs::File::open(file).with_context(cannot_read)?;
        opened.take(most + 1).read_to_string(&mut text).with_context(cannot_read)?;
    }
    ensure!(text.len() <= yaml::MAX_BYTES, "{} has more than {most} bytes", file.display());
    Ok(text)
}

/// Refuses to overwrite the input.
fn refuse_input(input: &Path, output: &Path) -> anyhow::Result<()> {
    let same = fs::canonicalize(output)
        .is_ok_and(|output| fs::canonicalize(input).is_ok_and(|input| input == output));
    ensure!(!same, "{} is read, and cannot be written to", output.display());
    Ok(())
}
