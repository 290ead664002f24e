//! The fenced blocks of a page, and what their first lines say about them.

/// A fenced block of a page in Markdown.
pub(super) struct Block {
    /// The line of the page that opens it.
    pub(super) line: usize,
    /// `sh`, `toml` and so on.
    pub(super) language: String,
    pub(super) mark: Mark,
    pub(super) text: String,
}

/// What follows the language of a block.
pub(super) enum Mark {
    /// Nothing: the block is tested by its language.
    None,
    /// `output`: what the block of `sh` before it prints. `…` stands for any text, and alone for any lines.
    Output,
    /// `tested by FILE`: this file, below `crates`, tests the block.
    TestedBy(String),
    /// `not tested: REASON`.
    NotTested,
}

/// The blocks of a page in their order.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (at, line) in page.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(info) => {
                is_open = true;
                assert!(
                    !info.contains('`'),
                    "line {}: no backtick may follow the three that open a block",
                    at + 1
                );
                let (language, mark) = info.split_once([' ', ',']).unwrap_or((info, ""));
                let (language, mark) = (language.to_owned(), Mark::read(mark));
                blocks.push(Block { line: at + 1, language, mark, text: String::new() });
            }
            None if is_open => {
                let block = blocks.last_mut().expect("the open one");
                block.text += line;
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!is_open, "the last block has no end");
    blocks
}

impl Mark {
    fn read(words: &str) -> Self {
        match words.trim() {
            "" | "no_run" | "test_harness" => Self::None,
            "output" => Self::Output,
            words => {
                if let Some(file) = words.strip_prefix("tested by ") {
                    return Self::TestedBy(file.to_owned());
                }
                let reason = words.strip_prefix("not tested: ").unwrap_or_default();
                assert!(!reason.is_empty(), "{words:?} is neither `tested by FILE` nor `not tested: REASON`");
                Self::NotTested
            }
        }
    }
}

/// True if the lines are those that were expected.
pub(super) fn agrees(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"…", rest)) => (0..=lines.len()).any(|skipped| agrees(rest, &lines[skipped..])),
        Some((expected, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| fits(expected.trim_end(), line.trim_end()) && agrees(rest, others)),
    }
}

/// True if the line is the pattern, with any text in the place of each `…`.
fn fits(pattern: &str, line: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('…') else { return pattern == line };
    let Some(mut line) = line.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = line.split_once(part) else { return false };
        line = after;
    }
    line.ends_with(end)
}

#[test]
fn an_ellipsis_stands_for_any_text_and_alone_for_any_lines() {
    assert!(agrees(&["a", "…", "b … d…"], &["a", "x", "y", "b c d"]));
    assert!(agrees(&["…"], &[]));
    assert!(!agrees(&["a", "…", "b"], &["a", "b", "c"]));
    assert!(!agrees(&["a…c"], &["a b"]));
    assert!(!agrees(&[], &["a"]));
}
