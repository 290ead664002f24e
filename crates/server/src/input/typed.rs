//! JSON bodies of callers. Checks only that members have the right type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use spile_core::{Amount, Charges, Cost, Key, Limit, LimitError, Micros, PermitId, RefundId};
use spile_policy::{Owed, Policy};

use crate::input::fault::Fault;
use crate::input::tokens::TypedTokens;

/// One question as it is written in a body, in the id of a reservation, and in a permit.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub(crate) struct TypedQuestion<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(crate) rule_id: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(crate) plans: Option<Vec<Text<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<TypedTokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<TypedTokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refill_per_second: Option<TypedTokens>,
}

impl TypedQuestion<'_> {
    /// Returns the charges of the question.
    pub(crate) fn owed(&self, policy: &Policy) -> Result<Owed, Fault> {
        let Self { rule_id, plans, cost, capacity, refill_per_second, .. } = self;
        let cost = cost.map(|TypedTokens(amount)| amount);
        match (rule_id.as_deref(), plans, capacity, refill_per_second) {
            (Some(id), None, None, None) => Ok(policy.owed_by_identity(id, self.identity()?, cost)?),
            (None, Some(plans), None, None) if plans.len() > Charges::MAX => {
                let why = format_args!("has {} names; it takes 1 to {}", plans.len(), Charges::MAX);
                Err(Fault::new("plans", why))
            }
            (None, Some(plans), None, None) => {
                let plans = plans.iter().map(|plan| &**plan);
                Ok(policy.owed_by_plans(self.identity()?, plans, cost.unwrap_or(Amount::TOKEN))?)
            }
            (Some(id), None, Some(TypedTokens(capacity)), Some(TypedTokens(refill))) => {
                let limit = Limit::per_second(*refill).burst(*capacity).build().map_err(own_limit_fault)?;
                let identity = self.identity()?;
                Ok(policy.owed_by_limit(id, None, identity, limit, cost.unwrap_or(Amount::TOKEN))?)
            }
            _ => Err(self.unclear()),
        }
    }

    /// Returns the charges of a question that could not release a permit: one that needs a permit is refused.
    pub(crate) fn owed_without_permit(&self, policy: &Policy) -> Result<Owed, Fault> {
        self.owed(policy)?.without_permit().map_err(|why| Fault::new(self.asked_by(), why))
    }

    /// Returns the charges of a question that takes a permit. Plans that it names must have a concurrency; a rule may lead to a plan that
    /// has none.
    pub(crate) fn owed_with_permit(&self, policy: &Policy) -> Result<Owed, Fault> {
        let owed = self.owed(policy)?;
        if self.plans.is_none() {
            return Ok(owed);
        }
        owed.with_permit().map_err(|why| Fault::new("plans", why))
    }

    /// The field that leads to the limits.
    const fn asked_by(&self) -> &'static str {
        if self.plans.is_some() { "plans" } else { "ruleId" }
    }

    /// The late charges, and the tokens if they are not the rule's own. They may be more than a limit can
    /// hold.
    pub(crate) fn owed_late(mut self, policy: &Policy) -> Result<(Owed, Option<Cost>), Fault> {
        let tokens = self.cost.map(|TypedTokens(amount)| Cost::new(amount)).transpose();
        let tokens = tokens.map_err(|why| Fault::new("cost", why))?;
        self.cost = tokens.map(|_| TypedTokens(Amount::ZERO));
        Ok((self.owed(policy)?, tokens))
    }

    fn identity(&self) -> Result<&str, Fault> {
        self.identity.as_deref().ok_or_else(|| {
            Fault::new("identity", format_args!("is missing; it takes 1 to {} bytes of text", Key::MAX_BYTES))
        })
    }

    fn unclear(&self) -> Fault {
        match (&self.rule_id, &self.plans, self.capacity, self.refill_per_second) {
            (None, None, None, None) => Fault::new(
                "ruleId",
                "is missing; give `ruleId`, `plans`, or `ruleId` with `capacity` and `refillPerSecond`",
            ),
            (_, Some(_), ..) => {
                Fault::new("plans", "is used alone; leave out `ruleId`, `capacity` and `refillPerSecond`")
            }
            (_, _, Some(_), None) => {
                Fault::new("refillPerSecond", "is missing; `capacity` needs it, from 0.000001 to 1000000000")
            }
            (_, _, None, _) => {
                Fault::new("capacity", "is missing; `refillPerSecond` needs it, from 1 to 1000000000")
            }
            (None, ..) => Fault::new(
                "ruleId",
                "is missing; a limit of your own needs 1 to 64 letters, digits, `.`, `_` or `-`",
            ),
            (Some(_), None, Some(_), Some(_)) => Fault::new("body", "is not a question"),
        }
    }
}

/// Defines a type for a body that is a question with more fields. serde has no other way to refuse unknown fields.
macro_rules! question_with {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
        pub(crate) struct $name<'a> {
            #[serde(borrow)]
            rule_id: Option<Text<'a>>,
            #[serde(borrow)]
            identity: Option<Text<'a>>,
            #[serde(borrow)]
            plans: Option<Vec<Text<'a>>>,
            cost: Option<TypedTokens>,
            capacity: Option<TypedTokens>,
            refill_per_second: Option<TypedTokens>,
            $($field: Option<$kind>,)+
        }

        impl<'a> $name<'a> {
            /// The question, and each field if it is present.
            pub(crate) fn into_parts(self) -> (TypedQuestion<'a>, $(Option<$kind>),+) {
                let Self { rule_id, identity, plans, cost, capacity, refill_per_second, $($field),+ } = self;
                (TypedQuestion { rule_id, identity, plans, cost, capacity, refill_per_second }, $($field),+)
            }
        }
    };
}

question_with! {
    /// A refund as it is written in a body: a question, the id that makes it idempotent, and when the tokens were spent.
    TypedRefund { id: Text<'a>, at: TypedMicros }
}

question_with! {
    /// A reservation as it is written in a body: a question, and how long it can be settled.
    TypedReserve { ttl: Ttl }
}

question_with! {
    /// A question that takes a permit, as it is written in a body, and who holds it.
    TypedAcquire { holder: Text<'a> }
}

/// A permit, as it is written in a body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub(crate) struct TypedPermit<'a> {
    #[serde(borrow)]
    pub(crate) permit: Option<Text<'a>>,
}

/// The final cost of a reservation, as it is written in a body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub(crate) struct TypedSettle<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<Text<'a>>,
    pub(crate) cost: Option<TypedTokens>,
    #[serde(borrow)]
    pub(crate) costs: Option<BTreeMap<Cow<'a, str>, TypedTokens>>,
}

/// A moment, as a decision reports it in `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypedMicros(pub(crate) Micros);

impl<'de> Deserialize<'de> for TypedMicros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let whole = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(number as u64);
        let micros = number.as_u64().or_else(|| number.as_f64().and_then(whole));
        micros.map(|micros| Self(Micros::new(micros))).ok_or_else(|| D::Error::custom("is not a time"))
    }
}

/// How long something can be done: seconds, or a number and a unit, as in `90s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ttl(pub(crate) Duration);

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of seconds, or a span of time")]
        enum Written {
            Seconds(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Seconds(seconds) => {
                // Values out of bounds are refused later. A cast takes them to the nearest number.
                (seconds >= 0.0).then(|| Self(Duration::from_micros((seconds * 1e6).round() as u64)))
            }
            Written::Text(text) => humantime::parse_duration(&text).ok().map(Self),
        }
        .ok_or_else(|| D::Error::custom("is not a duration"))
    }
}

/// The id of a refund, unless it is too short or too long.
pub(crate) fn refund_id(id: &str) -> Result<RefundId<'_>, Fault> {
    RefundId::new(id).map_err(|why| Fault::new("id", why))
}

fn own_limit_fault(why: LimitError) -> Fault {
    let field = if matches!(why, LimitError::Capacity { .. }) { "capacity" } else { "refillPerSecond" };
    Fault::new(field, why)
}

/// Reads a body. If that fails, reads it again to find the faulty field.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|_| blame::<T>(body))
}

/// A JSON object. By default, serde also reads a struct from a list of its fields, which no client means.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(std::marker::PhantomData))
    }
}

/// A list that holds at most `MOST` elements. The rest are only counted.
#[derive(Debug)]
pub(crate) struct BoundedVec<T, const MOST: usize> {
    pub(crate) items: Vec<T>,
    pub(crate) count: usize,
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for BoundedVec<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MOST: usize>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ListVisitor<T, MOST> {
            type Value = BoundedVec<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while items.len() < MOST {
                    match list.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(BoundedVec { count: items.len(), items }),
                    }
                }
                let mut count = MOST;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(BoundedVec { items, count })
            }
        }

        deserializer.deserialize_seq(ListVisitor(std::marker::PhantomData))
    }
}

/// Text that is copied only where the JSON escapes part of it.
#[derive(Debug)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

fn blame<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Fault {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => Fault::new("body", "holds more than one JSON value"),
        Err(why) => {
            let path = why.path().to_string();
            let what = why.into_inner();
            match last_field(&path).and_then(bound_of) {
                Some(bound) => Fault::new(path, format_args!("{what}; it takes {bound}")),
                None if path == "." || path == "?" => Fault::new("body", what),
                None => Fault::new(path, what),
            }
        }
    }
}

/// The field at the end of a path: `cost` of `[3].cost`, `plans` of `plans[1]`.
fn last_field(path: &str) -> Option<&str> {
    path.rsplit('.').next()?.split('[').next()
}

/// The accepted values of a field of a question, in words.
pub(crate) fn bound_of(field: &str) -> Option<String> {
    Some(match field {
        "id" => format!("1 to {} bytes of text", RefundId::MAX_BYTES),
        "at" => "the `at` of a decision, in microseconds".to_owned(),
        "costs" => "the names of limits, each with a number of tokens".to_owned(),
        "holder" => format!("0 to {} bytes of text without control characters", PermitId::MAX_HOLDER_BYTES),
        "permit" => "the `permit` that /v1/acquire answered".to_owned(),
        "ttl" => "1 second to 1 day: a number of seconds, or a number and a unit, as in `90s`".to_owned(),
        "cost" => format!("a number of tokens from 0 to {}, with at most six decimals", Limit::MAX_TOKENS),
        "capacity" => {
            format!("a number of tokens from 1 to {}, with at most six decimals", Limit::MAX_TOKENS)
        }
        "refillPerSecond" => {
            format!("a number of tokens from 0.000001 to {}, with at most six decimals", Limit::MAX_TOKENS)
        }
        "identity" => format!("1 to {} bytes of text without control characters", Key::MAX_BYTES),
        "ruleId" => "1 to 64 letters, digits, `.`, `_` or `-`".to_owned(),
        "plans" => format!("a list of 1 to {} plan names", Charges::MAX),
        _ => return None,
    })
}
