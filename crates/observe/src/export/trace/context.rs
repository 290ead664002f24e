//! The trace that a request belongs to, in the format of W3C Trace Context.

use std::fmt;

/// The content of a `traceparent` header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceContext {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent`. `None` if it is not valid. Later versions of the format may have more fields.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.trim().split('-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let lower_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let sound =
            lower_hex(version, 2) && lower_hex(trace, 32) && lower_hex(span, 16) && lower_hex(flags, 2);
        if !sound || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok()?;
        let span_id = u64::from_str_radix(span, 16).ok()?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }

    /// Whether the trace is sampled.
    pub(crate) const fn is_sampled(self) -> bool {
        self.sampled
    }

    /// A new span in the trace of `parent`, or the first span of a new trace.
    pub(crate) fn child_of(parent: Option<Self>) -> Self {
        let trace_id = parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace_id);
        Self { trace_id, span_id: fastrand::u64(1..), sampled: true }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_reads_back_as_it_was_written() {
        assert_eq!(TraceContext::parse(GOOD).map(|context| context.to_string()).as_deref(), Some(GOOD));
        assert!(!TraceContext::parse(&GOOD.replace("-01", "-00")).is_some_and(TraceContext::is_sampled));
        assert!(TraceContext::parse(&(GOOD.replace("00-4", "cc-4") + "-more")).is_some());
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for bad in [
            "",
            "00",
            zeros,
            &GOOD.to_uppercase(),
            &GOOD.replace("00-4", "ff-4"),
            &(GOOD.to_owned() + "-more"),
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
