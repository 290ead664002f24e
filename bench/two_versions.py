"""Builds `bench/src/bin/questions.rs` against this version of the crates and an earlier one, and prints what both cost beside each other."""
import pathlib
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTIONS = pathlib.Path("bench/src/bin/questions.rs")
CRATES = ("calendar", "core")


def build(root, target):
    """The program `questions` of a checkout."""
    command = ["cargo", "build", "--release", "--quiet", "-p", "spile-bench", "--bin", "questions", "--target-dir", str(target)]
    subprocess.run(command, cwd=root, check=True)
    return target / "release" / "questions"


class Versions:
    """The programs of an earlier commit and of this checkout."""

    def __init__(self, commit):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.checkout = self.folder / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(self.checkout), commit], cwd=ROOT, check=True)
        # The questions of this version, whatever the earlier one asked.
        shutil.copy(ROOT / QUESTIONS, self.checkout / QUESTIONS)
        manifest = self.checkout / "bench/Cargo.toml"
        text = manifest.read_text()
        for crate in CRATES:
            line = f"spile-{crate}.workspace = true\n"
            text = text if line in text else text.replace("[dependencies]\n", "[dependencies]\n" + line, 1)
        manifest.write_text(text)
        # Both are built in the same folder, so that dependencies are built once and paths are as long.
        target = ROOT / "target/two-versions"
        self.programs = {}
        for name, root in [("old", self.checkout), ("new", ROOT)]:
            # Cargo names what it built by paths within the workspace, and would take a crate of the other checkout for this one's.
            for built in (target / "release/.fingerprint").glob("spile-*"):
                shutil.rmtree(built)
            self.programs[name] = self.folder / f"questions-{name}"
            shutil.copy(build(root, target), self.programs[name])
        self.programs["again"] = self.programs["old"]

    def remove(self):
        subprocess.run(["git", "worktree", "remove", "--force", str(self.checkout)], cwd=ROOT, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def table(unit, rows):
    """Rows of (name, {build: [measured]}), with the ratio of new to old and of the old build to itself."""
    print(f"| asked | old {unit} | new {unit} | new / old | old / old |\n|---|---|---|---|---|")
    for name, measured in rows:
        old, again, new = (statistics.median(measured[build]) for build in ("old", "again", "new"))
        print(f"| {name} | {old:,.1f} | {new:,.1f} | {new / old:.3f} | {again / old:.3f} |", flush=True)
