//! YAML as a tree with line numbers. Scalars keep their text, because their meaning depends on the key: `value: 007` is three characters.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// The largest file that is read.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most scalars, lists and mappings in a file, including those that aliases repeat: a few lines of nested aliases expand to millions.
const MAX_NODES: usize = 200_000;
/// The maximum nesting depth of lists and mappings.
const MAX_DEPTH: usize = 64;

/// A scalar, a list or a mapping.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    /// Its line, from 1.
    pub(super) line: usize,
    pub(super) kind: YamlKind,
}

/// The kind of a node.
#[derive(Clone, Debug)]
pub(super) enum YamlKind {
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<YamlNode>),
    /// Keys are scalars, in the order of the file.
    Mapping(Vec<(String, YamlNode)>),
}

/// Why a text cannot be read as YAML.
#[derive(Debug, thiserror::Error)]
#[error("{line}: {why}")]
pub(super) struct YamlError {
    pub(super) line: usize,
    pub(super) why: String,
}

impl YamlError {
    pub(super) fn new(line: usize, why: impl Into<String>) -> Self {
        Self { line, why: why.into() }
    }
}

impl YamlNode {
    /// Reads the only document of a text. `None` if it is empty.
    pub(super) fn read(text: &str) -> Result<Option<Self>, YamlError> {
        let mut reader = Reader { events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
        let mut document = None;
        while let Some((event, line)) = reader.next()? {
            match event {
                Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
                _ if document.is_some() => {
                    return Err(YamlError::new(line, "a second document begins; write one to a file"));
                }
                event => document = Some(reader.node(event, line, 0)?),
            }
        }
        Ok(document.filter(|node| !node.is_null()))
    }

    /// True for no value at all, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, YamlKind::Scalar { text, quoted: false } if ["", "~", "null", "Null", "NULL"].contains(&&**text))
    }

    fn count(&self) -> usize {
        match &self.kind {
            YamlKind::Scalar { .. } => 1,
            YamlKind::List(items) => 1 + items.iter().map(Self::count).sum::<usize>(),
            YamlKind::Mapping(members) => 1 + members.iter().map(|(_, node)| node.count()).sum::<usize>(),
        }
    }
}

struct Reader<'t> {
    events: Parser<'t, saphyr_parser::StrInput<'t>>,
    /// Nodes that aliases may repeat, by their number.
    anchors: HashMap<usize, YamlNode>,
    nodes: usize,
}

impl<'t> Reader<'t> {
    /// The next event and its line.
    fn next(&mut self) -> Result<Option<(Event<'t>, usize)>, YamlError> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, span.start.line()))),
            Some(Err(why)) => Err(YamlError::new(why.marker().line(), why.info())),
        }
    }

    fn node(&mut self, event: Event<'t>, line: usize, depth: usize) -> Result<YamlNode, YamlError> {
        self.count(1, line)?;
        if depth > MAX_DEPTH {
            return Err(YamlError::new(
                line,
                format!("lists and mappings are nested more than {MAX_DEPTH} deep"),
            ));
        }
        let (kind, anchor) = match event {
            Event::Alias(number) => return self.repeated(number, line),
            Event::Scalar(text, style, anchor, _) => {
                let quoted = style != ScalarStyle::Plain;
                (YamlKind::Scalar { text: text.into_owned(), quoted }, anchor)
            }
            Event::SequenceStart(anchor, _) => (YamlKind::List(self.list(line, depth)?), anchor),
            Event::MappingStart(anchor, _) => (YamlKind::Mapping(self.mapping(line, depth)?), anchor),
            _ => return Err(YamlError::new(line, "a value is missing")),
        };
        let node = YamlNode { line, kind };
        if anchor > 0 {
            self.count(node.count(), line)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// The node that an alias stands for.
    fn repeated(&mut self, number: usize, line: usize) -> Result<YamlNode, YamlError> {
        let Some(count) = self.anchors.get(&number).map(YamlNode::count) else {
            return Err(YamlError::new(line, "an alias has no anchor before it"));
        };
        self.count(count, line)?;
        self.anchors
            .get(&number)
            .cloned()
            .ok_or_else(|| YamlError::new(line, "an alias has no anchor before it"))
    }

    fn list(&mut self, line: usize, depth: usize) -> Result<Vec<YamlNode>, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                None => return Err(YamlError::new(line, "a list does not end")),
                Some((Event::SequenceEnd, _)) => return Ok(items),
                Some((event, line)) => items.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, line: usize, depth: usize) -> Result<Vec<(String, YamlNode)>, YamlError> {
        let mut members: Vec<(String, YamlNode)> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (key, line) = match self.next()? {
                None => return Err(YamlError::new(line, "a mapping does not end")),
                Some((Event::MappingEnd, _)) => break,
                Some((Event::Scalar(key, ..), line)) => (key.into_owned(), line),
                Some((_, line)) => return Err(YamlError::new(line, "a key is not text")),
            };
            let Some((event, at)) = self.next()? else {
                return Err(YamlError::new(line, "a mapping does not end"));
            };
            let value = self.node(event, at, depth + 1)?;
            match value.kind {
                YamlKind::Mapping(others) if key == "<<" => merged.extend(others),
                _ if members.iter().any(|(other, _)| *other == key) => {
                    return Err(YamlError::new(line, format!("`{key}` is defined twice")));
                }
                kind => members.push((key, YamlNode { line: value.line, kind })),
            }
        }
        // Members of the mapping itself override those that are merged into it.
        merged.retain(|(key, _)| !members.iter().any(|(own, _)| own == key));
        members.extend(merged);
        Ok(members)
    }

    fn count(&mut self, nodes: usize, line: usize) -> Result<(), YamlError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(YamlError::new(line, format!("there are more than {MAX_NODES} values")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        YamlNode::read(text).expect_err(text).to_string()
    }

    #[test]
    fn scalars_are_kept_as_they_are_written() {
        let Ok(Some(YamlNode { kind: YamlKind::Mapping(members), .. })) =
            YamlNode::read("a: 007\nb: yes\nc: '~'\nd: ~\ne:\nf: 1e3\n")
        else {
            panic!("a mapping")
        };
        let texts: Vec<_> = members
            .iter()
            .map(|(key, node)| match &node.kind {
                YamlKind::Scalar { text, .. } => (key.as_str(), text.as_str(), node.is_null(), node.line),
                _ => panic!("{node:?}"),
            })
            .collect();
        let expected =
            [("a", "007", false, 1), ("b", "yes", false, 2), ("c", "~", false, 3), ("d", "~", true, 4)];
        assert_eq!(texts[..4], expected);
        assert!(texts[4].2 && texts[5].1 == "1e3");
    }

    #[test]
    fn an_alias_is_what_it_stands_for_and_a_merged_mapping_is_overridden() {
        let text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: *x\n";
        let Ok(Some(YamlNode { kind: YamlKind::Mapping(members), .. })) = YamlNode::read(text) else {
            panic!("a mapping")
        };
        let keys = |at: usize| match &members[at].1.kind {
            YamlKind::Mapping(members) => members.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
            kind => panic!("{kind:?}"),
        };
        assert_eq!((keys(1), keys(2)), (vec!["b", "a"], vec!["a", "b"]));
    }

    #[test]
    fn a_few_lines_that_stand_for_millions_are_refused() {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, of) in [('b', 'a'), ('c', 'b'), ('d', 'c'), ('e', 'd'), ('f', 'e')] {
            let ten = vec![format!("*{of}"); 10].join(", ");
            text = format!("{text}{name}: &{name} [{ten}]\n");
        }
        assert!(why(&text).contains("there are more than 200000 values"));
        assert!(why(&format!("{}{}", "[".repeat(70), "]".repeat(70))).contains("more than 64 deep"));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        assert!(why("a: 1\nb: [\n").starts_with('3') || why("a: 1\nb: [\n").starts_with('2'));
        assert_eq!(why("a: 1\na: 2\n"), "2: `a` is defined twice");
        assert_eq!(why("a: 1\n---\nb: 2\n"), "3: a second document begins; write one to a file");
        assert!(YamlNode::read("").expect("empty is no mistake").is_none());
    }
}
