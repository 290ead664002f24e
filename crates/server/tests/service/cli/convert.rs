//! `spile convert envoy`: files of Envoy's rate limit service as a configuration.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::Process;

const MESSAGES: &str = "domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 5 }
  - key: to_number
    rate_limit: { unit: day, requests_per_unit: 100 }
";

const ADDRESSES: &str = "domain: edge
descriptors:
  - key: remote_address
    detailed_metric: true
    rate_limit: { unit: second, requests_per_unit: 10 }
";

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn convert(arguments: &[&str]) -> Output {
    Process::run(&[&["convert", "envoy"], arguments].concat())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

#[test]
fn a_file_becomes_a_configuration_that_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let (yaml, toml) = (folder.path().join("messaging.yaml"), folder.path().join("spile.toml"));
    fs::write(&yaml, MESSAGES).expect("the folder is ours");
    let printed = convert(&[path(&yaml)]);
    assert_eq!((printed.status.code(), stderr(&printed).as_str()), (Some(0), ""));
    let text = stdout(&printed);
    for words in [
        "grpc = \"127.0.0.1:8083\"",
        "[plans.\"5-per-day\"]",
        "refill = \"5/day\"",
        "id = \"messaging.to_number\"",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let written = convert(&[path(&yaml), "--output", path(&toml)]);
    assert_eq!((written.status.code(), stdout(&written).as_str()), (Some(0), ""));
    assert_eq!(fs::read_to_string(&toml).expect("it was written"), text);
    let checked = Process::run(&["config", "check", path(&toml)]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(stdout(&checked).contains("works: 5 plans, 3 rules"), "{}", stdout(&checked));
}

#[test]
fn months_are_quotas_and_so_is_the_rest_if_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (yaml, toml) = (folder.path().join("limits.yaml"), folder.path().join("spile.toml"));
    fs::write(&yaml, MESSAGES.replacen("unit: day", "unit: month", 1)).expect("the folder is ours");
    let text = stdout(&convert(&[path(&yaml)]));
    assert!(text.contains("[plans.\"5-per-month\"]\nquota = 5\nper = \"month\"\n"), "{text}");
    assert!(text.contains("refill = \"100/day\""), "{text}");
    let written = convert(&[path(&yaml), "--windows", "--output", path(&toml)]);
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    let text = fs::read_to_string(&toml).expect("it was written");
    assert!(text.contains("quota = 100\nper = \"day\"\n"), "{text}");
    let checked = Process::run(&["config", "check", path(&toml)]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
}

#[test]
fn a_folder_is_all_its_files_and_what_cannot_be_said_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("b.yml", ADDRESSES), ("a.yaml", MESSAGES), ("notes.txt", "no: yaml: at all")] {
        fs::write(folder.path().join(name), text).expect("the folder is ours");
    }
    let printed = convert(&[path(folder.path())]);
    assert_eq!(printed.status.code(), Some(1));
    let note = "b.yml:4: `detailed_metric` has no counterpart: values are never labels of metrics";
    assert!(stderr(&printed).contains(note), "{}", stderr(&printed));
    assert!(stdout(&printed).contains(&format!("{note}\n")), "as a comment, too");
    assert_eq!(stdout(&printed).matches("[[rules]]").count(), 3);
}

#[test]
fn what_is_wrong_is_told_with_its_file_and_line_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (yaml, toml) = (folder.path().join("limits.yaml"), folder.path().join("spile.toml"));
    fs::write(&yaml, MESSAGES.replace("unit: day, requests_per_unit: 100", "unit: fortnight"))
        .expect("the folder is ours");
    let refused = convert(&[path(&yaml), "--output", path(&toml)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("limits.yaml:9: `fortnight` is not a unit"), "{}", stderr(&refused));
    assert!(!toml.exists());

    fs::write(&yaml, MESSAGES).expect("the folder is ours");
    let refused = convert(&[path(&yaml), "--output", path(&yaml)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("is read, and cannot be written to"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(&yaml).expect("it is there"), MESSAGES);

    let missing = convert(&["/nowhere/limits.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read /nowhere/limits.yaml"), "{}", stderr(&missing));
}

#[test]
fn rules_whose_hits_have_been_used_are_named_by_a_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    let yaml = folder.path().join("messaging.yaml");
    fs::write(&yaml, MESSAGES).expect("the folder is ours");
    let text = stdout(&convert(&[path(&yaml), "--late", "message_type"]));
    assert_eq!(text.matches("late = true").count(), 1, "{text}");
}
