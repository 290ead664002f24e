//! A run as data: it is generated from a seed, reduced when it fails, and pasted into a test.

mod generate;
mod limits;

pub use self::limits::{LimitSpec, PLAN_NAMES, PlanSpec, WindowSpec};

/// The names that a pasted test uses.
pub mod prelude {
    pub use super::Action::*;
    pub use super::Fault::*;
    pub use super::LimitSpec::*;
    pub use super::Operation::*;
    pub use super::Policy::*;
    pub use super::RefundTime::*;
    pub use super::Tampering::*;
    pub use super::WindowSpec::*;
    pub use super::{Event, FleetSpec, PlanSpec, Scenario};
}

/// Microseconds since the start of the run.
pub type At = u64;

/// Node n's clock is n times this ahead.
pub const CLOCK_STEP_US: u64 = 700_000;

/// A whole run. Equal scenarios give equal traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Chooses delays, the order of tasks, and what instances draw.
    pub seed: u64,
    /// The processes and servers.
    pub fleet: FleetSpec,
    /// The plans, and what they may change to.
    pub plans: Vec<PlanSpec>,
    /// Events in the order of time.
    pub events: Vec<Event>,
}

/// The processes and servers of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetSpec {
    /// How many instances there are.
    pub instances: u8,
    /// How many nodes the store has. With more than one it is a cluster.
    pub nodes: u8,
    /// When the run starts, in seconds since the epoch.
    pub starts: u64,
    /// The failure policy of all instances.
    pub policy: Policy,
    /// How long a denial is remembered.
    pub deny_cache_ms: u64,
    /// The largest part of a bucket that an instance may lease, in percent.
    pub lease_percent: u8,
    /// The store's timeout. The limiter's deadline is 10 ms longer.
    pub timeout_ms: u64,
    /// Connections of each instance to each node.
    pub connections: u8,
    /// How much faster the monotonic clocks of the second, fourth, … instance run.
    pub drift_ppm: i64,
    /// How much faster the clock of every other node is, counting from the first.
    pub node_drift_ppm: i64,
}

/// A failure policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Policy {
    /// Pass.
    FailOpen,
    /// Refuse.
    FailClosed,
    /// Decide alone.
    Local,
}

/// Something that happens at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: At,
    /// The action.
    pub action: Action,
}

impl Event {
    /// A caller asks an instance.
    pub fn ask(
        at: At,
        instance: u8,
        operation: Operation,
        keys: impl Into<Vec<u8>>,
        plans: impl Into<Vec<u8>>,
        cost: i64,
    ) -> Self {
        let (keys, plans) = (keys.into(), plans.into());
        let question = Question { instance, operation, keys, plans, cost, cancel: None, shadow: false };
        Self { at, action: Action::Ask(question) }
    }

    /// The caller goes away after this many microseconds.
    #[must_use]
    pub fn cancelled_after(mut self, us: u32) -> Self {
        if let Action::Ask(question) = &mut self.action {
            question.cancel = Some(us);
        }
        self
    }

    /// The question comes from a shadow rule.
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        if let Action::Ask(question) = &mut self.action {
            question.shadow = true;
        }
        self
    }
}

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A caller asks an instance.
    Ask(Question),
    /// Something fails.
    Fault(Fault),
    /// A plan changes to another of its versions, on one instance or on all.
    Change {
        /// The plan.
        plan: u8,
        /// The version, modulo their number.
        version: u8,
        /// The instance that learns of it. `None`: all.
        instance: Option<u8>,
    },
}

/// The operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The instance that is asked.
    pub instance: u8,
    /// The operation.
    pub operation: Operation,
    /// Who pays: one key, or two.
    pub keys: Vec<u8>,
    /// Under which plans.
    pub plans: Vec<u8>,
    /// The cost in micro-tokens.
    pub cost: i64,
    /// The caller goes away after this many microseconds.
    pub cancel: Option<u32>,
    /// It comes from a shadow rule.
    pub shadow: bool,
}

/// An operation of a caller. Numbers choose among the permits, spends and reservations that are open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// Spends.
    Allow,
    /// Spends. After a denial it waits for the reported time and asks again, up to this many times.
    AllowAsTold(u8),
    /// Waits until it can be spent, for at most this many milliseconds.
    UntilReady(u32),
    /// Looks.
    Peek,
    /// Spends what is there.
    SpendUpTo,
    /// Charges late.
    Charge,
    /// Refunds an earlier decision. With `once`, the refund has an id, so that repeats have no effect.
    Refund {
        /// Chooses the decision.
        of: u16,
        /// Names it, so that it is given once.
        once: bool,
        /// The time of the spend, as the refund names it.
        time: RefundTime,
    },
    /// Makes buckets full.
    Reset,
    /// Reserves for this many seconds.
    Reserve(u32),
    /// Settles one of the reservations at this share of its cost, in percent.
    Settle {
        /// Chooses the reservation.
        of: u16,
        /// The share.
        percent: u16,
    },
    /// Takes a permit.
    Acquire,
    /// Waits for a permit, for at most this many milliseconds.
    AcquireWhenReady(u32),
    /// Releases one of the permits of the instance, and waits for it if that is set.
    Release {
        /// Chooses the permit.
        of: u16,
        /// Waits until the store knows.
        waits: bool,
    },
}

/// The time of a spend, as a refund names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefundTime {
    /// The time.
    Known,
    /// Nothing.
    Unknown,
    /// Only that the spend was in the current window, as Envoy's negative hits do.
    ThisWindow,
}

/// A write of another program to a key of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tampering {
    /// Deletes it.
    Delete,
    /// Replaces it by a value of another type.
    Retype,
    /// Replaces its version by text.
    Garble,
    /// Writes a higher version, and the present one after this many milliseconds.
    NewerFormat(u32),
}

/// A failure and how long it lasts. Every failure heals by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// An instance is killed, and another one starts after this many milliseconds.
    Kill(u8, u32),
    /// An instance is paused for this many milliseconds.
    Pause(u8, u32),
    /// The runtime of an instance ends with its tasks. Its callers continue on another runtime.
    EndRuntime(u8),
    /// The wall clock of an instance steps by this many milliseconds.
    StepInstance(u8, i64),
    /// The clock of a node steps by this many milliseconds.
    StepNode(u8, i64),
    /// The network takes up to the first number of microseconds, for the second number of milliseconds.
    Slow(u32, u32),
    /// Nothing passes between an instance and a node for a time in milliseconds.
    Partition(u8, u8, u32),
    /// No reply of a node arrives at an instance for a time in milliseconds.
    LoseReplies(u8, u8, u32),
    /// Connections to a node are cut.
    Cut(u8),
    /// A node is frozen for a time in milliseconds.
    Freeze(u8, u32),
    /// A node restarts without data after a time in milliseconds.
    Restart(u8, u32),
    /// A replica takes over after a time in milliseconds. It lacks the writes of the last milliseconds, the third number.
    FailOver(u8, u32, u32),
    /// A node forgets its scripts.
    FlushScripts(u8),
    /// A node is out of memory for a time in milliseconds.
    OutOfMemory(u8, u32),
    /// A node denies a command to the user for a time in milliseconds.
    DenyCommand(u8, u8, u32),
    /// A node accepts no writes for a time in milliseconds.
    ReadOnly(u8, u32),
    /// Another writer changes one of the keys of a node. The second number chooses the key.
    Tamper(u8, u16, Tampering),
    /// Another server takes over the address of a node. The former one is its replica, and keeps its connections.
    Demote(u8),
    /// The nodes of a cluster report a wrong slot map for a time in milliseconds, and redirect.
    StaleMap(u32),
}

impl Scenario {
    /// The run of a seed, with this many questions.
    pub fn generate(seed: u64, questions: usize) -> Self {
        generate::scenario(seed, questions)
    }

    /// When the last event happens.
    pub fn ends(&self) -> At {
        self.events.iter().map(|event| event.at).max().unwrap_or(0)
    }
}

impl Operation {
    /// The name without its numbers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowAsTold(_) => "allow_as_told",
            Self::UntilReady(_) => "until_ready",
            Self::Peek => "peek",
            Self::SpendUpTo => "spend_up_to",
            Self::Charge => "charge",
            Self::Refund { once: false, time: RefundTime::Known, .. } => "refund",
            Self::Refund { once: false, time: RefundTime::Unknown, .. } => "refund_untimed",
            Self::Refund { once: false, time: RefundTime::ThisWindow, .. } => "refund_this_window",
            Self::Refund { once: true, .. } => "refund_once",
            Self::Reset => "reset",
            Self::Reserve(_) => "reserve",
            Self::Settle { .. } => "settle",
            Self::Acquire => "acquire",
            Self::AcquireWhenReady(_) => "acquire_when_ready",
            Self::Release { .. } => "release",
        }
    }
}

impl Fault {
    /// How long it lasts, in milliseconds.
    pub const fn lasts_ms(self) -> u32 {
        match self {
            Self::Kill(_, ms)
            | Self::Pause(_, ms)
            | Self::Slow(_, ms)
            | Self::Partition(_, _, ms)
            | Self::LoseReplies(_, _, ms)
            | Self::Freeze(_, ms)
            | Self::Restart(_, ms)
            | Self::FailOver(_, ms, _)
            | Self::OutOfMemory(_, ms)
            | Self::DenyCommand(_, _, ms)
            | Self::ReadOnly(_, ms)
            | Self::StaleMap(ms)
            | Self::Tamper(_, _, Tampering::NewerFormat(ms)) => ms,
            Self::EndRuntime(_)
            | Self::StepInstance(..)
            | Self::StepNode(..)
            | Self::Cut(_)
            | Self::FlushScripts(_)
            | Self::Demote(_)
            | Self::Tamper(..) => 0,
        }
    }

    /// The name without its numbers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill(..) => "kill",
            Self::Pause(..) => "pause",
            Self::EndRuntime(_) => "end_runtime",
            Self::StepInstance(..) => "step_instance",
            Self::StepNode(..) => "step_node",
            Self::Slow(..) => "slow",
            Self::Partition(..) => "partition",
            Self::LoseReplies(..) => "lose_replies",
            Self::Cut(_) => "cut",
            Self::Freeze(..) => "freeze",
            Self::Restart(..) => "restart",
            Self::FailOver(..) => "fail_over",
            Self::FlushScripts(_) => "flush_scripts",
            Self::OutOfMemory(..) => "out_of_memory",
            Self::DenyCommand(..) => "deny_command",
            Self::ReadOnly(..) => "read_only",
            Self::Tamper(..) => "tamper",
            Self::Demote(_) => "demote",
            Self::StaleMap(_) => "stale_map",
        }
    }

    /// True if buckets, permits and markers may be gone or end at another time than was promised.
    pub const fn loses_state(self) -> bool {
        match self {
            Self::Tamper(_, _, how) => !matches!(how, Tampering::NewerFormat(_)),
            _ => matches!(self, Self::StepNode(..) | Self::Restart(..) | Self::FailOver(..)),
        }
    }
}
