//! The decisions about the descriptors of a request, and the answer to Envoy.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use spile_core::{Decision, Reason};
use spile_policy::{DescriptorOwed, DescriptorsOwed, Enforced};

use super::message::{Code, DescriptorStatus, RateLimitDescriptor, RateLimitRequest};
use super::verdict;
use crate::observe::metrics::Answered;

/// The decisions about the descriptors of a request.
pub(super) struct Charged<'o> {
    owed: &'o DescriptorsOwed,
    /// About all enforced descriptors together. `None` without enforced descriptors, or if the request fails without them.
    enforced: Option<Decision>,
    alone: Vec<AloneDecision>,
}

/// The decision about a descriptor by itself.
pub(super) struct AloneDecision {
    /// Its place in the request.
    pub(super) at: usize,
    pub(super) decision: Decision,
    status: DescriptorStatus,
}

impl AloneDecision {
    pub(super) fn new(at: usize, owed: &DescriptorOwed, decision: Decision) -> Self {
        let status = match owed {
            DescriptorOwed::Late(_) => verdict::status_late(&decision),
            DescriptorOwed::Any(chain) => {
                let all: Vec<usize> = (0..chain.buckets().len()).collect();
                verdict::status(chain, &all, &decision)
            }
            _ => verdict::status_alone(&decision),
        };
        Self { at, decision, status }
    }

    fn is_over(&self) -> bool {
        self.status.code == i32::from(Code::OverLimit)
    }

    fn is_alternative(&self, owed: &DescriptorsOwed) -> bool {
        matches!(owed.each[self.at], DescriptorOwed::Any(_))
    }
}

impl<'o> Charged<'o> {
    pub(super) const fn new(owed: &'o DescriptorsOwed, alone: Vec<AloneDecision>) -> Self {
        Self { owed, enforced: None, alone }
    }

    pub(super) fn with_enforced(self, enforced: Option<Decision>) -> Self {
        Self { enforced, ..self }
    }

    fn alternatives(&self) -> impl Iterator<Item = &AloneDecision> {
        self.alone.iter().filter(|one| one.is_alternative(self.owed))
    }

    /// Alternatives that passed.
    pub(super) fn passed(&self) -> impl Iterator<Item = &AloneDecision> {
        self.alternatives().filter(|one| !one.is_over())
    }

    /// Whether there are alternatives, none of which passed.
    pub(super) fn lacks_alternative(&self) -> bool {
        self.alternatives().next().is_some() && self.passed().next().is_none()
    }

    /// Whether the enforced descriptors let the request pass.
    pub(super) fn passes_enforced(&self) -> bool {
        self.enforced.as_ref().is_none_or(Decision::allowed) && self.owed.can_pass()
    }

    pub(super) fn answered(&self) -> Answered {
        let failed = |decision: &Decision| decision.reason() == Reason::FailClosed;
        let lacks_alternative = self.lacks_alternative();
        let mut late =
            self.alone.iter().filter(|one| matches!(self.owed.each[one.at], DescriptorOwed::Late(_)));
        if self.enforced.as_ref().is_some_and(failed)
            || (lacks_alternative && self.alternatives().any(|one| failed(&one.decision)))
        {
            Answered::Unavailable
        } else if lacks_alternative || !self.passes_enforced() || late.clone().any(AloneDecision::is_over) {
            Answered::Limited
        } else if self.enforced.is_some() || self.passed().next().is_some() || late.next().is_some() {
            Answered::Allowed
        } else {
            Answered::Other
        }
    }

    /// The decision that the client sees: the enforced one if there is one, else the alternative that lets it pass, or that would do so
    /// soonest.
    pub(super) fn told(&self) -> Option<&Decision> {
        let soonest = || self.alternatives().min_by_key(|one| one.decision.retry_after());
        let last = || self.passed().next().or_else(soonest).or_else(|| self.alone.last());
        self.enforced.as_ref().or_else(|| last().map(|one| &one.decision))
    }

    /// The status of each descriptor, in order.
    pub(super) fn statuses(&self) -> Vec<DescriptorStatus> {
        let mut statuses: Vec<_> = self.owed.each.iter().map(|_| verdict::unlimited()).collect();
        if let (Enforced::Charged(chain), Some(decision)) = (&self.owed.enforced, &self.enforced) {
            for (status, owed) in statuses.iter_mut().zip(&self.owed.each) {
                if let DescriptorOwed::Enforced(places) = owed {
                    *status = verdict::status(chain, places, decision);
                }
            }
        }
        for one in &self.alone {
            statuses[one.at] = one.status.clone();
        }
        statuses
    }

    /// Which alternatives are over their limits, under the names that Envoy's own service has for it. `None` if the request has
    /// no alternatives.
    pub(super) fn metadata(&self, request: &RateLimitRequest) -> Option<Struct> {
        self.alternatives().next()?;
        let over = self.alternatives().filter(|one| one.is_over());
        let over = over.map(|one| Kind::NumberValue(one.at as f64)).collect();
        let fields = [
            ("domain", text(&request.domain)),
            ("descriptors", list(request.descriptors.iter().map(shown).collect())),
            ("quotaModeEnabled", Kind::BoolValue(true)),
            ("quotaModeViolations", list(over)),
        ];
        Some(object(fields))
    }
}

fn shown(descriptor: &RateLimitDescriptor) -> Kind {
    let entry = |entry: &super::message::DescriptorEntry| text(&[&*entry.key, b"=", &*entry.value].concat());
    let entries = list(descriptor.entries.iter().map(entry).collect());
    Kind::StructValue(object([("entries", entries)]))
}

fn object<const N: usize>(fields: [(&str, Kind); N]) -> Struct {
    let field = |(name, kind): (&str, Kind)| (name.to_owned(), Value { kind: Some(kind) });
    Struct { fields: fields.into_iter().map(field).collect() }
}

fn list(kinds: Vec<Kind>) -> Kind {
    Kind::ListValue(ListValue { values: kinds.into_iter().map(|kind| Value { kind: Some(kind) }).collect() })
}

/// Bytes that are not UTF-8 are shown as replacement characters.
fn text(bytes: &[u8]) -> Kind {
    Kind::StringValue(String::from_utf8_lossy(bytes).into_owned())
}
