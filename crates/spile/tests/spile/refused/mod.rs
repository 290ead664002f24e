//! Misuse of the attribute is a compile error whose text is beside each case. `SPILE_UI=overwrite` writes the texts anew.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate that this test was linked with, and the folder of everything that it depends on. A case that is compiled
/// against them needs no build of its own.
fn built_crate() -> (PathBuf, PathBuf) {
    let test = std::env::current_exe().expect("a test is a file");
    let folder = test.parent().expect("it is in a folder").to_owned();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libspile-") && path.extension() == Some("rlib".as_ref())
    };
    // Earlier builds may have left others, with other features.
    let newest = files(&folder).into_iter().filter(is_ours).max_by_key(|path| {
        fs::metadata(path).and_then(|found| found.modified()).expect("it was there a moment ago")
    });
    (newest.expect("it was built for this test"), folder)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The compiler's errors, without the count at the end.
fn errors_of(case: &Path) -> String {
    let (library, folder) = built_crate();
    let out = tempfile::tempdir().expect("a folder");
    let compiled = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--emit=metadata", "--color=never"])
        .arg("--out-dir")
        .arg(out.path())
        .arg("-L")
        .arg(format!("dependency={}", folder.display()))
        .arg("--extern")
        .arg(format!("spile={}", library.display()))
        .arg(case)
        .output()
        .expect("rustc is installed where cargo is");
    let errors = String::from_utf8(compiled.stderr).expect("it writes text");
    assert!(!compiled.status.success(), "{} compiles\n{errors}", case.display());
    let is_count =
        |line: &&str| line.starts_with("error: aborting due to") || line.starts_with("For more information");
    let lines: Vec<&str> = errors.lines().filter(|line| !is_count(line)).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

#[test]
fn the_attribute_explains_what_it_does_not_accept() {
    let is_case = |path: &PathBuf| path.extension() == Some("rs".as_ref()) && !path.ends_with("mod.rs");
    let mut cases: Vec<_> = files(Path::new("tests/spile/refused")).into_iter().filter(is_case).collect();
    cases.sort();
    assert!(cases.len() >= 8, "{cases:?}");
    for case in cases {
        let (errors, beside) = (errors_of(&case), case.with_extension("stderr"));
        if std::env::var_os("SPILE_UI").is_some_and(|word| word == "overwrite") {
            fs::write(&beside, &errors).expect("it can be written");
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        assert_eq!(errors, expected, "{}", case.display());
    }
}
