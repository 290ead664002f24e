//! Turns descriptors of Envoy's rate limit service into plans and rules that decide as it does.
//!
//! The service walks down its tree, one entry per level and without backtracking: it prefers an exact value, then a pattern with a star,
//! then an entry without a value. Spile takes the most specific of all rules that match. The two differ where the service enters a branch
//! that has no limit for the rest of the descriptor. An unlimited rule is added there.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use smol_str::SmolStr;
use spile_calendar::{Calendar, Period};
use spile_core::{Limit, LimitError, Plan, PlanName};
use spile_policy::{
    DEFAULT_RULE, DescriptorMatch, DescriptorOptions, EntryPattern, Matcher, Rule, RulePlans,
};

use super::envoy::{EnvoyAmount, EnvoyDescriptor, EnvoyDomain, EnvoyLimit, EnvoyUnit};
use crate::config::{PlanToml, RuleToml};

/// The most rules that a conversion makes.
const MAX_RULES: usize = 50_000;
/// The most bytes of a rule's id, which leave room for a number.
const ID_LENGTH: usize = 56;

/// How limits are written.
#[derive(Debug, Default)]
pub(super) struct ConversionOptions {
    /// True to write quotas of the calendar instead of rates.
    pub(super) windows: bool,
    /// Keys of descriptors whose hits are reported after use.
    pub(super) late_keys: Vec<String>,
}

/// The configuration that results from a conversion.
#[derive(Debug, Default)]
pub(super) struct Conversion {
    files: Vec<SmolStr>,
    plans: Vec<Plan>,
    plan_names: HashSet<PlanName>,
    rules: Vec<ConvertedRule>,
    ids: HashSet<SmolStr>,
    notes: Vec<ConversionNote>,
}

#[derive(Debug)]
struct ConvertedRule {
    /// Where it comes from.
    comment: String,
    rule: Rule,
}

/// Something that the configuration cannot express, or expresses in an unexpected way.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct ConversionNote {
    file: SmolStr,
    line: usize,
    what: String,
}

impl fmt::Display for ConversionNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Limits that cannot be converted at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConversionError {
    #[error("{file}: the domain `{domain}` has a star, which stands for every domain in Spile")]
    Domain { file: SmolStr, domain: String },
    #[error("{file}:{line}: the descriptor is defined in another file of the domain `{domain}`, too")]
    DefinedTwice { file: SmolStr, line: usize, domain: String },
    #[error("the limits become more than {MAX_RULES} rules")]
    TooManyRules,
}

impl Conversion {
    pub(super) fn of(domains: &[EnvoyDomain], options: &ConversionOptions) -> Result<Self, ConversionError> {
        let mut conversion =
            Self { files: domains.iter().map(|domain| domain.file.clone()).collect(), ..Self::default() };
        check_domains(domains)?;
        let mut names: Vec<&str> = domains.iter().map(|domain| domain.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let files: Vec<_> = domains.iter().filter(|domain| domain.name == name).collect();
            DomainConversion::new(name, options, &mut conversion).run(&files)?;
        }
        conversion.notes.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        Ok(conversion)
    }

    pub(super) fn notes(&self) -> &[ConversionNote] {
        &self.notes
    }

    /// Returns the plan of this limit. Rules with the same limit share a plan, because their descriptors are different keys.
    fn plan(&mut self, name: &str, limit: Limit) -> Option<PlanName> {
        let plan = Plan::new(name, limit).ok()?;
        let found = plan.name().clone();
        if self.plan_names.insert(found.clone()) {
            self.plans.push(plan);
        }
        Some(found)
    }

    fn note(&mut self, file: &SmolStr, line: usize, what: impl Into<String>) {
        let note = ConversionNote { file: file.clone(), line, what: what.into() };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Made by `spile convert envoy` from {}.", self.files.join(", "))?;
        for note in &self.notes {
            writeln!(f, "# {}", one_line(&note.to_string()))?;
        }
        writeln!(f, "\n[listen]\ngrpc = \"127.0.0.1:8083\"\n")?;
        self.plans.iter().try_for_each(|plan| writeln!(f, "{}", PlanToml(plan)))?;
        for ConvertedRule { comment, rule } in &self.rules {
            writeln!(f, "# {}\n{}", one_line(comment), RuleToml(rule))?;
        }
        Ok(())
    }
}

/// Puts the text on one line, so that it cannot leave its comment.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn check_domains(domains: &[EnvoyDomain]) -> Result<(), ConversionError> {
    for (at, domain) in domains.iter().enumerate() {
        let EnvoyDomain { file, name, .. } = domain;
        if name.contains('*') {
            return Err(ConversionError::Domain { file: file.clone(), domain: name.clone() });
        }
        let before = domains[..at].iter().filter(|other| other.name == *name);
        let known: HashSet<_> =
            before.flat_map(|other| &other.descriptors).map(|one| (&one.key, &one.value)).collect();
        if let Some(twice) = domain.descriptors.iter().find(|one| known.contains(&(&one.key, &one.value))) {
            let (file, domain) = (file.clone(), name.clone());
            return Err(ConversionError::DefinedTwice { file, line: twice.line, domain });
        }
    }
    Ok(())
}

/// The conversion of one domain, which may be written in several files.
struct DomainConversion<'a> {
    domain: &'a str,
    options: &'a ConversionOptions,
    to: &'a mut Conversion,
    /// The ids of rules by the names of their limits.
    by_name: HashMap<&'a str, Vec<SmolStr>>,
    /// The names that rules replace, by the place of the rule.
    replacing: Vec<(usize, &'a str, &'a EnvoyDescriptor)>,
    /// Entries for which there is a rule.
    written: HashSet<Vec<String>>,
}

/// A path down the tree to a descriptor.
type Branch<'a> = Vec<&'a EnvoyDescriptor>;

impl<'a> DomainConversion<'a> {
    fn new(domain: &'a str, options: &'a ConversionOptions, to: &'a mut Conversion) -> Self {
        Self { domain, options, to, by_name: HashMap::new(), replacing: Vec::new(), written: HashSet::new() }
    }

    fn run(mut self, files: &[&'a EnvoyDomain]) -> Result<(), ConversionError> {
        for EnvoyDomain { file, unknown, .. } in files {
            for (line, key) in unknown {
                self.to.note(file, *line, format!("`{key}` has no counterpart, and is left out"));
            }
        }
        let top: Vec<_> = files.iter().flat_map(|file| &file.descriptors).collect();
        self.descend(&top, &mut Vec::new())?;
        self.resolve_names();
        Ok(())
    }

    /// Writes the rules of sibling descriptors and of those below them.
    fn descend(
        &mut self,
        siblings: &[&'a EnvoyDescriptor],
        branch: &mut Branch<'a>,
    ) -> Result<(), ConversionError> {
        self.note_order(siblings);
        let siblings: Vec<_> = siblings.iter().copied().filter(|one| self.can_be_said(one)).collect();
        for one in &siblings {
            self.note_what_is_lost(one);
            branch.push(one);
            if let Some(limit) = &one.limit {
                self.write_limit(branch, branch, limit)?;
            }
            self.descend(&one.children.iter().collect::<Vec<_>>(), branch)?;
            branch.pop();
        }
        self.close_branches(&siblings, branch)
    }

    fn can_be_said(&mut self, one: &EnvoyDescriptor) -> bool {
        let can = has_plain_key(one);
        if !can {
            let why =
                "has a `=` or a `*`, which cannot be said; the descriptor and those below it are left out";
            self.to.note(&one.file, one.line, format!("the key `{}` {why}", one.key));
        }
        can
    }

    fn note_what_is_lost(&mut self, one: &EnvoyDescriptor) {
        for (line, key) in &one.unknown {
            let what = match key.as_str() {
                "detailed_metric" | "value_to_metric" => {
                    format!("`{key}` has no counterpart: values are never labels of metrics")
                }
                _ => format!("`{key}` has no counterpart, and is left out"),
            };
            self.to.note(&one.file, *line, what);
        }
        if one.quota && one.shadow {
            self.to.note(&one.file, one.line, "`shadow_mode` holds, and `quota_mode` is left out");
        }
    }

    /// Notes patterns that Spile would prefer in another order.
    fn note_order(&mut self, siblings: &[&EnvoyDescriptor]) {
        let starred: Vec<_> = siblings.iter().filter(|one| has_star(one)).collect();
        for (at, later) in starred.iter().enumerate() {
            let comes_first = |earlier: &&&&EnvoyDescriptor| {
                earlier.key == later.key && covers(earlier, later) && letters(earlier) < letters(later)
            };
            if starred[..at].iter().any(|earlier| comes_first(&earlier)) {
                let what =
                    "the service takes the first pattern that fits; Spile takes the one with more letters";
                self.to.note(&later.file, later.line, what);
            }
        }
    }

    /// Writes the limit at the end of a branch, for descriptors that match `values`: those of the branch itself, or a subset.
    fn write_limit(
        &mut self,
        branch: &[&'a EnvoyDescriptor],
        values: &[&'a EnvoyDescriptor],
        limit: &'a EnvoyLimit,
    ) -> Result<(), ConversionError> {
        let one = branch[branch.len() - 1];
        let plans = self.plans(one, limit.amount);
        let id = self.id(limit.name.as_deref(), values);
        if let Some(name) = &limit.name {
            self.by_name.entry(name).or_default().push(id.clone());
        }
        let place = self.to.rules.len();
        self.replacing.extend(limit.replaces.iter().map(|name| (place, name.as_str(), one)));
        let descriptors = DescriptorOptions {
            late: branch.iter().any(|one| self.options.late_keys.contains(&one.key)),
            any: one.quota && !one.shadow,
            replaces: Vec::new(),
        };
        let matcher = self.matcher(branch, values);
        let is_mixed = |one: &&EnvoyDescriptor| {
            branch.iter().any(|other| other.key == one.key && other.share_threshold != one.share_threshold)
        };
        if branch.iter().any(is_mixed) {
            let what = "`share_threshold` holds for every entry of its key";
            self.to.note(&one.file, one.line, what);
        }
        let rule = Rule { matcher, shadow: one.shadow, descriptors, ..Rule::new(&id, plans) };
        self.push(rule, values, format!("{}:{}", one.file, one.line))
    }

    fn push(
        &mut self,
        rule: Rule,
        branch: &[&EnvoyDescriptor],
        comment: String,
    ) -> Result<(), ConversionError> {
        if self.to.rules.len() == MAX_RULES {
            return Err(ConversionError::TooManyRules);
        }
        self.written.insert(entries(branch));
        self.to.ids.insert(rule.id.clone());
        self.to.rules.push(ConvertedRule { comment, rule });
        Ok(())
    }

    /// Adds unlimited rules where the service enters a branch that has no limit for the rest of a descriptor and a less specific branch
    /// has one.
    fn close_branches(
        &mut self,
        siblings: &[&'a EnvoyDescriptor],
        before: &[&'a EnvoyDescriptor],
    ) -> Result<(), ConversionError> {
        // Nothing is more specific than an exact value.
        for low in siblings.iter().filter(|low| low.value.is_none() || has_star(low)) {
            let specific: Vec<_> = siblings.iter().filter(|high| is_preferred(high, low)).collect();
            for rest in limited_below(low) {
                for high in &specific {
                    let branch: Branch<'a> =
                        before.iter().copied().chain([**high]).chain(rest.iter().copied()).collect();
                    if finds_limit(high, &rest) || self.written.contains(&entries(&branch)) {
                        continue;
                    }
                    let limited = rest.last().unwrap_or(low);
                    let (id, matcher) = (self.id(None, &branch), self.matcher(&branch, &branch));
                    let comment = format!(
                        "{}:{} has no limit for this, and so that of {}:{} does not apply",
                        high.file, high.line, limited.file, limited.line
                    );
                    self.push(Rule { matcher, ..Rule::new(&id, RulePlans::Unlimited) }, &branch, comment)?;
                    self.reopen_limits(before, high, &rest)?;
                }
            }
        }
        Ok(())
    }

    /// Adds rules for values that match both a rule that closes `rest` below `high` and a separate limit of `high`. Without them the
    /// closing rule would win if it names an earlier entry more exactly.
    fn reopen_limits(
        &mut self,
        before: &[&'a EnvoyDescriptor],
        high: &'a EnvoyDescriptor,
        rest: &[&'a EnvoyDescriptor],
    ) -> Result<(), ConversionError> {
        for own in limited_below(high) {
            let Some(both) = narrower(&own, rest) else { continue };
            let on = |rest: &[&'a EnvoyDescriptor]| -> Branch<'a> {
                before.iter().copied().chain([high]).chain(rest.iter().copied()).collect()
            };
            let (branch, matched) = (on(&own), on(&both));
            let limit = branch.last().and_then(|one| one.limit.as_ref());
            let is_found =
                found_below(high, &both).is_some_and(|found| std::ptr::eq(found, branch[branch.len() - 1]));
            if let Some(limit) = limit.filter(|_| is_found && !self.written.contains(&entries(&matched))) {
                self.write_limit(&branch, &matched, limit)?;
            }
        }
        Ok(())
    }

    /// Resolves the names that limits replace into rule ids.
    fn resolve_names(&mut self) {
        for (place, name, one) in std::mem::take(&mut self.replacing) {
            match self.by_name.get(name) {
                None => {
                    let what = format!("no limit has the name `{name}`, which is to be replaced");
                    self.to.note(&one.file, one.line, what);
                }
                Some(ids) => {
                    let rule = &mut self.to.rules[place].rule;
                    rule.descriptors.replaces.extend(ids.iter().filter(|id| **id != rule.id).cloned());
                }
            }
        }
    }

    /// Matches the values of `matched`. Values share a bucket if they share one in the branch.
    fn matcher(&self, branch: &[&EnvoyDescriptor], matched: &[&EnvoyDescriptor]) -> Matcher {
        let pattern = |(one, text): (&&EnvoyDescriptor, String)| {
            let pattern: EntryPattern = text.parse().ok()?;
            Some(if one.share_threshold { pattern.shared() } else { pattern })
        };
        let entries = branch.iter().zip(entries(matched)).filter_map(pattern).collect();
        let descriptor = DescriptorMatch { domain: self.domain.to_owned(), entries, subset: false };
        Matcher { descriptor: Some(descriptor), ..Matcher::default() }
    }

    /// The id of a rule: its name, or its entries, with a number if that is taken.
    fn id(&self, name: Option<&str>, branch: &[&EnvoyDescriptor]) -> SmolStr {
        let own = name.filter(|name| PlanName::new(name).is_ok() && name.len() <= ID_LENGTH);
        let parts = || {
            let entry = |one: &&EnvoyDescriptor| match &one.value {
                Some(value) => format!("{}-{value}", one.key),
                None => one.key.clone(),
            };
            std::iter::once(self.domain.to_owned())
                .chain(branch.iter().map(entry))
                .collect::<Vec<_>>()
                .join(".")
        };
        let text = own.map_or_else(parts, str::to_owned);
        let is_good = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let text: String = text.chars().map(|letter| if is_good(letter) { letter } else { '-' }).collect();
        let text = &text[..text.len().min(ID_LENGTH)];
        let numbers = std::iter::once(String::new()).chain((2..).map(|number| format!("-{number}")));
        let is_free = |id: &SmolStr| id != DEFAULT_RULE && !self.to.ids.contains(id);
        numbers.map(|number| SmolStr::new(format!("{text}{number}"))).find(is_free).unwrap_or_default()
    }

    fn plans(&mut self, one: &EnvoyDescriptor, amount: EnvoyAmount) -> RulePlans {
        let EnvoyAmount::Per { requests, unit, units } = amount else { return RulePlans::Unlimited };
        if requests == 0 {
            return RulePlans::Banned;
        }
        let tokens = requests.min(Limit::MAX_TOKENS);
        if tokens < requests {
            let what = format!("{requests} requests are more than a limit can hold: it is {tokens}");
            self.to.note(&one.file, one.line, what);
        }
        let name = format!("{tokens}-per-{}", time(unit, units).replace(' ', "-"));
        let limit = self.limit(one, tokens, unit, units);
        if let Some(plan) = limit.ok().and_then(|limit| self.to.plan(&name, limit)) {
            return RulePlans::Listed(vec![plan]);
        }
        let what = format!("{tokens} per {} is out of bounds; the rule denies all", time(unit, units));
        self.to.note(&one.file, one.line, what);
        RulePlans::Banned
    }

    fn limit(
        &mut self,
        one: &EnvoyDescriptor,
        tokens: u32,
        unit: EnvoyUnit,
        units: u32,
    ) -> Result<Limit, LimitError> {
        let of_calendar = |period: &Period| matches!(period, Period::Month | Period::Year);
        let is_window = self.options.windows || unit.as_ref().is_some_and(of_calendar);
        match unit {
            Some(period) if is_window && units == 1 => {
                Limit::per_window(u64::from(tokens), Calendar::new(period).windows()).build()
            }
            _ => {
                if is_window {
                    let spoken = if units == 1 { format!("a {}", time(unit, 1)) } else { time(unit, units) };
                    let what = format!("there are no windows of {spoken}: it is a rate");
                    self.to.note(&one.file, one.line, what);
                }
                let length = unit.map_or(Duration::from_secs(1), Period::length);
                Limit::per(u64::from(tokens), length.saturating_mul(units)).build()
            }
        }
    }
}

/// `minute`, or `10 minutes`.
fn time(unit: EnvoyUnit, units: u32) -> String {
    let name = unit.map_or("second", Period::as_str);
    if units == 1 { name.to_owned() } else { format!("{units} {name}s") }
}

/// The entries of a rule, as files have them.
fn entries(branch: &[&EnvoyDescriptor]) -> Vec<String> {
    let entry = |one: &&EnvoyDescriptor| match &one.value {
        Some(value) => format!("{}={value}", one.key),
        None => one.key.clone(),
    };
    branch.iter().map(entry).collect()
}

/// Whether its key is the key of an entry, and nothing else.
fn has_plain_key(one: &EnvoyDescriptor) -> bool {
    !one.key.contains(['=', '*'])
}

fn has_star(one: &EnvoyDescriptor) -> bool {
    one.value.as_ref().is_some_and(|value| value.contains('*'))
}

fn letters(one: &EnvoyDescriptor) -> usize {
    one.value.as_ref().map_or(0, |value| value.bytes().filter(|byte| *byte != b'*').count())
}

/// True if the service prefers `high` to `low` for a value that matches both.
fn is_preferred(high: &EnvoyDescriptor, low: &EnvoyDescriptor) -> bool {
    let rank = |one: &EnvoyDescriptor| match &one.value {
        None => 0,
        Some(_) if has_star(one) => 1,
        Some(_) => 2,
    };
    high.key == low.key && rank(high) > rank(low) && covers(low, high)
}

/// True if every value of `narrow` matches `wide`.
fn covers(wide: &EnvoyDescriptor, narrow: &EnvoyDescriptor) -> bool {
    match (&wide.value, &narrow.value) {
        (None, _) => true,
        (Some(_), None) => false,
        // A star in `narrow` is an ordinary character, which only a star in `wide` matches.
        (Some(wide), Some(narrow)) => fits(wide, narrow),
    }
}

/// True if the text matches the pattern, in which a star stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// The paths from a descriptor down to those that have a limit, without the descriptor itself.
fn limited_below(one: &EnvoyDescriptor) -> Vec<Branch<'_>> {
    let limits = |one: &EnvoyDescriptor| {
        one.limit.as_ref().is_some_and(|limit| limit.amount != EnvoyAmount::Unlimited)
    };
    let own = limits(one).then(Vec::new);
    let below = one.children.iter().filter(|child| has_plain_key(child)).flat_map(|child| {
        limited_below(child).into_iter().map(move |mut rest| {
            rest.insert(0, child);
            rest
        })
    });
    own.into_iter().chain(below).collect()
}

/// The narrower of two entries at each level. `None` if no values match both paths, or neither entry covers the other.
fn narrower<'a>(one: &[&'a EnvoyDescriptor], other: &[&'a EnvoyDescriptor]) -> Option<Branch<'a>> {
    let narrower = |(one, other): (&&'a EnvoyDescriptor, &&'a EnvoyDescriptor)| match one.key == other.key {
        true if covers(one, other) => Some(*other),
        true if covers(other, one) => Some(*one),
        _ => None,
    };
    if one.len() == other.len() { one.iter().zip(other).map(narrower).collect() } else { None }
}

/// Whether the service finds a limit for these entries below a descriptor.
fn finds_limit(from: &EnvoyDescriptor, rest: &[&EnvoyDescriptor]) -> bool {
    found_below(from, rest).is_some_and(|found| found.limit.is_some())
}

/// The descriptor that the service reaches for these entries below another.
fn found_below<'a>(from: &'a EnvoyDescriptor, rest: &[&EnvoyDescriptor]) -> Option<&'a EnvoyDescriptor> {
    let mut at = from;
    for entry in rest {
        let same_key = || at.children.iter().filter(|child| child.key == entry.key);
        let exact = same_key().find(|child| child.value == entry.value);
        let starred = || same_key().find(|child| has_star(child) && covers(child, entry));
        let any = || same_key().find(|child| child.value.is_none());
        match exact.or_else(starred).or_else(any) {
            Some(child) => at = child,
            None => return None,
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use spile_policy::{Descriptor, DescriptorOwed, Hits, Policy};

    use super::*;
    use crate::config::Config;

    fn converted_with(text: &str, options: &ConversionOptions) -> Conversion {
        let domain = EnvoyDomain::read("limits.yaml", text).unwrap_or_else(|why| panic!("{why}"));
        Conversion::of(&[domain], options).unwrap_or_else(|why| panic!("{why}"))
    }

    fn converted(text: &str) -> Conversion {
        converted_with(text, &ConversionOptions::default())
    }

    fn notes(conversion: &Conversion) -> Vec<String> {
        conversion.notes().iter().map(ToString::to_string).collect()
    }

    /// The decision of the converted configuration about a descriptor: the name of its plan, `banned`, or `None` if it passes.
    fn decided(policy: &Policy, domain: &str, entries: &[(&str, &str)]) -> Option<String> {
        let entries = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        let descriptor = Descriptor { entries, limit: None, hits: Hits::Spend(1) };
        let owed = policy.owed_by_descriptors(domain.as_bytes(), &[descriptor]).expect("there is room");
        match &owed.each[0] {
            DescriptorOwed::Unmatched | DescriptorOwed::Unlimited => None,
            DescriptorOwed::Enforced(_) => match owed.enforced {
                spile_policy::Enforced::Charged(chain) => Some(chain.buckets()[0].limit().name().to_string()),
                spile_policy::Enforced::Unlimited { .. } => None,
            },
            DescriptorOwed::Any(chain) | DescriptorOwed::Late(chain) => {
                Some(chain.buckets()[0].limit().name().to_string())
            }
            DescriptorOwed::Shadow => match &owed.shadow[..] {
                [(0, DescriptorOwed::Any(chain) | DescriptorOwed::Late(chain))] => {
                    Some(chain.buckets()[0].limit().name().unshadowed().to_owned())
                }
                _ => None,
            },
            other @ DescriptorOwed::Refund(_) => panic!("{other:?}"),
        }
    }

    /// The written file, read as the server reads it.
    fn read_back(conversion: &Conversion) -> Config {
        let text = conversion.to_string();
        Config::parse(Path::new("spile.toml"), text.clone(), []).unwrap_or_else(|why| panic!("{why}\n{text}"))
    }

    const EXAMPLE: &str = "
domain: rl
descriptors:
  - key: source_cluster
    value: proxy
    descriptors:
      - key: destination_cluster
        value: mock
        rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: foo
    rate_limit: { unit: minute, requests_per_unit: 2 }
    descriptors:
      - key: bar
        rate_limit: { unit: MINUTE, requests_per_unit: 3 }
      - key: bar
        value: banned
        rate_limit: { unit: minute, requests_per_unit: 0 }
      - key: bay
        rate_limit: { unlimited: true }
  - key: remote_address
    rate_limit: { unit: day, requests_per_unit: 100 }
  - key: remote_address
    value: 10.0.0.1
  - key: path
    value: /files/*
    rate_limit: { unit: hour, requests_per_unit: 7 }
";

    #[test]
    fn a_file_decides_as_it_does_for_the_service() {
        type Case<'c> = (&'c [(&'c str, &'c str)], Option<&'c str>);
        let conversion = converted(EXAMPLE);
        assert_eq!(notes(&conversion), Vec::<String>::new());
        let policy = read_back(&conversion).policy();
        let table: &[Case<'_>] = &[
            (&[("source_cluster", "proxy"), ("destination_cluster", "mock")], Some("1-per-minute")),
            (&[("source_cluster", "proxy"), ("destination_cluster", "other")], None),
            (&[("source_cluster", "proxy")], None),
            (&[("foo", "x")], Some("2-per-minute")),
            (&[("foo", "x"), ("bar", "y")], Some("3-per-minute")),
            (&[("foo", "x"), ("bar", "banned")], Some("banned")),
            (&[("foo", "x"), ("bay", "y")], None),
            (&[("foo", "x"), ("bar", "y"), ("more", "z")], None),
            (&[("remote_address", "10.0.0.2")], Some("100-per-day")),
            (&[("remote_address", "10.0.0.1")], None),
            (&[("path", "/files/a")], Some("7-per-hour")),
            (&[("path", "/other")], None),
        ];
        for (entries, expected) in table {
            assert_eq!(decided(&policy, "rl", entries).as_deref(), *expected, "{entries:?}");
        }
        assert_eq!(decided(&policy, "elsewhere", &[("foo", "x")]), None);
    }

    #[test]
    fn modes_names_and_shared_values_are_said() {
        let text = "
domain: d
descriptors:
  - key: a
    shadow_mode: true
    rate_limit: { name: slow, unit: second, requests_per_unit: 5 }
  - key: b
    rate_limit: { unit: second, requests_per_unit: 9, replaces: [{ name: slow }] }
  - key: c
    quota_mode: true
    rate_limit: { unit: second, requests_per_unit: 5 }
  - key: d
    value: x*
    share_threshold: true
    rate_limit: { unit: second, requests_per_unit: 5 }
";
        let options = ConversionOptions { late_keys: vec!["c".to_owned()], ..ConversionOptions::default() };
        let config = read_back(&converted_with(text, &options));
        let rule =
            |id: &str| config.rules.iter().find(|rule| rule.id == id).unwrap_or_else(|| panic!("{id}"));
        assert!(rule("slow").shadow && !rule("slow").descriptors.late);
        assert_eq!(rule("d.b").descriptors.replaces, ["slow"]);
        assert!(rule("d.c").descriptors.any && rule("d.c").descriptors.late);
        let shared =
            rule("d.d-x-").matcher.descriptor.as_ref().map(|descriptor| descriptor.entries[0].is_shared());
        assert_eq!(shared, Some(true));
        assert_eq!(config.plans.iter().filter(|plan| plan.name().as_str() == "5-per-second").count(), 1);
    }

    #[test]
    fn what_cannot_be_said_is_told_with_its_line() {
        let text = "domain: d
future: 1
descriptors:
  - key: a
    detailed_metric: true
    metadata: { service: x }
    rate_limit: { unit: second, requests_per_unit: 5, replaces: [{ name: gone }], burst: 3 }
  - key: b=c
    rate_limit: { unit: second, requests_per_unit: 5 }
";
        assert_eq!(
            notes(&converted(text)),
            [
                "limits.yaml:2: `future` has no counterpart, and is left out",
                "limits.yaml:4: no limit has the name `gone`, which is to be replaced",
                "limits.yaml:5: `detailed_metric` has no counterpart: values are never labels of metrics",
                "limits.yaml:6: `metadata` has no counterpart, and is left out",
                "limits.yaml:7: `burst` has no counterpart, and is left out",
                "limits.yaml:8: the key `b=c` has a `=` or a `*`, which cannot be said; the descriptor and those below it \
                 are left out",
            ]
        );
    }

    #[test]
    fn what_the_service_refuses_is_refused() {
        let table = [
            ("descriptors: []", "limits.yaml:1: the file has no `domain`"),
            ("domain: d\ndescriptors:\n  - value: x", "limits.yaml:3: a descriptor has no `key`"),
            (
                "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {}",
                "limits.yaml:4: the limit has no `unit`",
            ),
            (
                "domain: d\ndescriptors:\n  - key: a\n  - key: a",
                "limits.yaml:4: the descriptor with the key `a` is defined twice",
            ),
            (
                "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, requests_per_unit: -1 }",
                "limits.yaml:4: `requests_per_unit` is `-1`; it takes 0 to 4294967295",
            ),
            ("", "limits.yaml:1: the file is empty"),
        ];
        for (text, expected) in table {
            let why = EnvoyDomain::read("limits.yaml", text).expect_err(text).to_string();
            assert_eq!(why, expected);
        }
        let twice =
            || EnvoyDomain::read("a.yaml", "domain: d\ndescriptors: [{ key: a }]").expect("it is a file");
        let why = Conversion::of(&[twice(), twice()], &ConversionOptions::default())
            .expect_err("it is there twice");
        assert!(why.to_string().ends_with("is defined in another file of the domain `d`, too"), "{why}");
    }

    #[test]
    fn units_become_rates_or_windows() {
        let text = "
domain: d
descriptors:
  - { key: s, rate_limit: { unit: second, requests_per_unit: 5 } }
  - { key: h, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: w, rate_limit: { unit: week, requests_per_unit: 5 } }
  - { key: m, rate_limit: { unit: month, requests_per_unit: 5 } }
  - { key: x, rate_limit: { unit: minute, requests_per_unit: 5, unit_multiplier: 10 } }
";
        let limits = |conversion: &Conversion| -> Vec<(String, bool)> {
            let limit = |plan: &Plan| (plan.name().to_string(), plan.limits()[0].limit().windows().is_some());
            let made = |plan: &&Plan| plan.name().as_str().contains("-per-");
            let mut limits: Vec<_> = read_back(conversion).plans.iter().filter(made).map(limit).collect();
            limits.sort();
            limits
        };
        let rates = converted(text);
        let named = |windows: [bool; 5]| {
            let names = ["5-per-10-minutes", "5-per-hour", "5-per-month", "5-per-second", "5-per-week"];
            names.map(str::to_owned).into_iter().zip(windows).collect::<Vec<_>>()
        };
        assert_eq!(limits(&rates), named([false, false, true, false, false]));
        assert!(notes(&rates).is_empty());
        let windows =
            converted_with(text, &ConversionOptions { windows: true, ..ConversionOptions::default() });
        assert_eq!(limits(&windows), named([false, true, true, false, true]));
        assert_eq!(
            notes(&windows),
            [
                "limits.yaml:4: there are no windows of a second: it is a rate",
                "limits.yaml:8: there are no windows of 10 minutes: it is a rate"
            ]
        );
    }

    /// The limit that the service finds for a descriptor: it walks down, and never turns back.
    fn found(mut level: &[EnvoyDescriptor], entries: &[(&str, &str)]) -> Option<String> {
        let mut limit = None;
        for (at, (key, value)) in entries.iter().enumerate() {
            let same = || level.iter().filter(|one| one.key == *key);
            let exact = same().find(|one| one.value.as_deref() == Some(value));
            let starred =
                || same().find(|one| has_star(one) && fits(one.value.as_deref().unwrap_or(""), value));
            let next = exact.or_else(starred).or_else(|| same().find(|one| one.value.is_none()))?;
            limit = next.limit.as_ref().filter(|_| at + 1 == entries.len());
            level = &next.children;
        }
        match limit?.amount {
            EnvoyAmount::Unlimited => None,
            EnvoyAmount::Per { requests: 0, .. } => Some("banned".to_owned()),
            EnvoyAmount::Per { requests, unit, .. } => Some(format!("{requests}-per-{}", time(unit, 1))),
        }
    }

    fn tree() -> impl Strategy<Value = Vec<EnvoyDescriptor>> {
        let limit = prop_oneof![
            3 => (0..1_000_u32).prop_map(|requests| EnvoyAmount::Per { requests, unit: Some(Period::Day), units: 1 }),
            1 => Just(EnvoyAmount::Unlimited),
        ];
        let limit = limit.prop_map(|amount| EnvoyLimit { amount, ..EnvoyLimit::default() });
        let value = prop::sample::select(vec![None, Some("x"), Some("y"), Some("x*")]);
        let node = (prop::sample::select(vec!["a", "b"]), value, prop::option::of(limit)).prop_map(
            |(key, value, limit)| EnvoyDescriptor {
                key: key.to_owned(),
                value: value.map(str::to_owned),
                limit,
                ..EnvoyDescriptor::default()
            },
        );
        let level = |of: BoxedStrategy<EnvoyDescriptor>| {
            prop::collection::vec(of, 0..6).prop_map(|mut level| {
                let mut known = HashSet::new();
                level.retain(|one| known.insert((one.key.clone(), one.value.clone())));
                level
            })
        };
        let leaf = node.clone().boxed();
        let below = |children: BoxedStrategy<Vec<EnvoyDescriptor>>, node: BoxedStrategy<EnvoyDescriptor>| {
            (node, children).prop_map(|(one, children)| EnvoyDescriptor { children, ..one }).boxed()
        };
        let two = below(level(leaf.clone()).boxed(), leaf.clone());
        let three = below(level(two.clone()).boxed(), leaf);
        level(prop_oneof![two, three].boxed())
    }

    proptest! {
        #[test]
        fn every_tree_decides_as_it_does_for_the_service(
            descriptors in tree(),
            asked in prop::collection::vec(
                prop::collection::vec((prop::sample::select(vec!["a", "b"]), prop::sample::select(vec!["x", "y", "xz", "", "x*"])), 1..4),
                1..40,
            ),
        ) {
            let domain = EnvoyDomain {
                file: "f".into(),
                name: "d".to_owned(),
                descriptors,
                unknown: Vec::new(),
            };
            let conversion = Conversion::of(std::slice::from_ref(&domain), &ConversionOptions::default());
            let conversion = conversion.expect("it can be said");
            let policy = read_back(&conversion).policy();
            for entries in asked {
                let expected = found(&domain.descriptors, &entries);
                prop_assert_eq!(decided(&policy, "d", &entries), expected, "{:?}\n{}", entries, conversion);
            }
        }
    }

    #[test]
    fn fuzzed_files_are_refused_with_a_line_or_become_a_configuration_that_works() {
        let words = [
            "domain: d\n",
            "descriptors:\n",
            "  - key: a\n",
            "    value: x*\n",
            "    rate_limit:\n",
            "      unit: day\n",
            "      requests_per_unit: 5\n",
            "    shadow_mode: true\n",
            "    descriptors:\n",
            "      - key: b\n",
            "&a ",
            "*a",
            "{",
            "}",
            "[",
            "]",
            "\"",
            "<<: ",
            "\u{e9}",
            "=",
        ];
        spile_testkit::fuzz::fuzz("convert-envoy", &words, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let domain = EnvoyDomain::read("f.yaml", &text).map_err(|why| {
                let why = why.to_string();
                assert!(why.starts_with("f.yaml:"), "{why}");
                why.chars().filter(char::is_ascii_alphabetic).take(24).collect::<String>()
            })?;
            let conversion =
                Conversion::of(&[domain], &ConversionOptions::default()).map_err(|why| why.to_string())?;
            Ok::<_, String>(read_back(&conversion).rules.len())
        });
    }
}
