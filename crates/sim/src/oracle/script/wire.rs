//! Decodes a call by the layout, and checks that it follows it.

use super::msgpack::decode;
use super::parts::{LAST_US, Parts, text};
use super::types::{BucketId, Op, PlainLimit, PlainWindow, ScriptKind, Shape};

/// Numbers per limit.
const LIMIT_NUMBERS: usize = 5;
/// Numbers per quota in the last part.
const BOUNDS: usize = 5;

/// A decoded call.
pub(super) struct Call<'a> {
    pub(super) sequence: i128,
    /// The time to decide by, or zero for the server's.
    pub(super) time: i128,
    /// The buckets in the order of their numbers.
    pub(super) buckets: Vec<BucketId>,
    /// The sets of permits in the order of their numbers.
    pub(super) sets: Vec<BucketId>,
    pub(super) questions: Vec<Question<'a>>,
}

/// A question of a call.
pub(super) struct Question<'a> {
    pub(super) op: Op,
    /// Rates, quotas, then concurrencies.
    pub(super) charges: Vec<Charge>,
    pub(super) permit: Option<&'a [u8]>,
    pub(super) spent: Spent,
    /// The index of the marker's bucket, and the amount that it gets. For a settlement, one more per charge: the settled amount.
    pub(super) markers: Vec<(usize, i128)>,
}

/// A charge of a question.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    pub(super) shape: Shape,
    /// The index of its bucket, or of its set of permits.
    pub(super) bucket: usize,
    pub(super) limit: PlainLimit,
    pub(super) cost: i128,
    /// Of a quota: the bounds of four windows.
    pub(super) bounds: Option<[i128; BOUNDS]>,
}

/// When refunded amounts were spent.
#[derive(Clone, Copy)]
pub(super) enum Spent {
    Unknown,
    Now,
    At(i128),
}

impl Charge {
    /// The window that holds this moment, if it is one of the first three.
    pub(super) fn window(&self, now: i128) -> Option<PlainWindow> {
        let bounds = self.bounds?;
        let holds = |pair: &[i128]| pair[0] <= now && now < pair[1];
        let at = bounds[..4].windows(2).position(holds)?;
        Some(PlainWindow { start: bounds[at], end: bounds[at + 1], next_end: bounds[at + 2] })
    }
}

/// Decodes a call.
pub(super) fn read<'a>(script: ScriptKind, keys: &[&[u8]], argument: &'a [u8]) -> Result<Call<'a>, String> {
    let items = decode(argument)?;
    let mut parts = Parts::new(&items);
    let (sequence, time) = (parts.int()?, parts.within("time", 0, LAST_US)?);
    let (first, last) = (parts.place()?, parts.place()?);
    let (mut buckets, hashes) = read_lists(&mut parts, keys)?;
    let set = |key: &&[u8]| BucketId { key: text(key), name: String::new(), shape: Shape::Concurrency };
    let sets: Vec<_> = keys[hashes..].iter().map(set).collect();
    let first_limit = parts.at;
    if first < first_limit
        || !(first - first_limit).is_multiple_of(LIMIT_NUMBERS)
        || last < first
        || last > parts.len()
    {
        return Err(format!("questions from place {} to {} do not follow the limits", first + 1, last + 1));
    }
    parts.at = first;
    let mut context = Context {
        script,
        first_limit,
        first,
        last,
        buckets: &mut buckets,
        sets: sets.len(),
        quotas: Vec::new(),
    };
    let mut questions = Vec::new();
    while parts.at < last {
        questions.push(context.question(&mut parts)?);
    }
    if parts.at != last {
        return Err("the last question reaches into the windows".to_owned());
    }
    if parts.len() - last != BOUNDS * context.quotas.len() {
        return Err(format!("{} quotas have {} bounds", context.quotas.len(), parts.len() - last));
    }
    Ok(Call { sequence, time, buckets, sets, questions })
}

/// Reads the lists of fields: all buckets, and the number of hashes.
fn read_lists(parts: &mut Parts<'_, '_>, keys: &[&[u8]]) -> Result<(Vec<BucketId>, usize), String> {
    let (mut buckets, mut hashes) = (Vec::new(), 0);
    for _ in 0..parts.count()? {
        let fields = (0..parts.count()?).map(|_| parts.text()).collect::<Result<Vec<_>, _>>()?;
        // The amounts of a settled reservation are no bucket.
        let pairs = fields.strip_suffix(&[b"a".as_slice()]).unwrap_or(&fields);
        let names = pairs.chunks(2).map(bucket_of).collect::<Result<Vec<_>, _>>()?;
        for _ in 0..parts.count()? {
            let key = text(keys.get(hashes).ok_or("lists name more hashes than there are keys")?);
            hashes += 1;
            let ids = names.iter().map(|(name, shape)| BucketId {
                key: key.clone(),
                name: name.clone(),
                shape: *shape,
            });
            buckets.extend(ids);
        }
    }
    if (1..keys.len()).any(|key| keys[..key].contains(&keys[key])) {
        return Err("a key occurs twice".to_owned());
    }
    Ok((buckets, hashes))
}

/// The name and the shape of the bucket with these two fields.
fn bucket_of(fields: &[&[u8]]) -> Result<(String, Shape), String> {
    let pair = || fields.iter().map(|field| text(field)).collect::<Vec<_>>();
    let [amount, time] = fields else { return Err(format!("fields {:?} are not a pair", pair())) };
    let split = |field: &[u8]| match field.iter().rposition(|byte| *byte == b':') {
        Some(colon) => (text(&field[..colon]), field[colon + 1..].to_vec()),
        None => (String::new(), field.to_vec()),
    };
    let ((name, amount), (other, time)) = (split(amount), split(time));
    match (amount.as_slice(), time.as_slice()) {
        (b"t", b"ts") if name == other => Ok((name, Shape::Rate)),
        (b"u", b"ue") if name == other => Ok((name, Shape::Quota)),
        _ => Err(format!("fields {:?} are not those of a bucket", pair())),
    }
}

/// The amounts of a tombstone.
pub(super) fn amounts(bytes: &[u8]) -> Result<Vec<i128>, String> {
    let amounts = text(bytes);
    let amounts = amounts.split(',').filter(|amount| !amount.is_empty());
    let amounts = amounts.map(|amount| amount.parse().map_err(|why| format!("amount {amount:?}: {why}")));
    amounts.collect()
}

/// The parts that questions refer to.
struct Context<'c> {
    script: ScriptKind,
    first_limit: usize,
    first: usize,
    last: usize,
    /// Each settled amount is a bucket, too, behind those of the call.
    buckets: &'c mut Vec<BucketId>,
    sets: usize,
    /// The place of the bounds of each quota that was seen.
    quotas: Vec<usize>,
}

impl Context<'_> {
    fn question<'a>(&mut self, parts: &mut Parts<'_, 'a>) -> Result<Question<'a>, String> {
        let number = parts.count()?;
        let op = number.checked_sub(1).and_then(|index| Op::ALL.get(index).copied());
        let op = op.ok_or_else(|| format!("there is no operation {number}"))?;
        let shapes: &[Shape] = match self.script {
            ScriptKind::Rates if op as u8 > Op::Refund as u8 => {
                return Err(format!("{op:?} was sent to the script for rates"));
            }
            ScriptKind::Rates => &[Shape::Rate],
            ScriptKind::Everything => &[Shape::Rate, Shape::Quota, Shape::Concurrency],
        };
        let counts = shapes.iter().map(|_| parts.count()).collect::<Result<Vec<_>, _>>()?;
        let mut charges: Vec<Charge> = Vec::with_capacity(counts.iter().sum::<usize>().min(64));
        for (shape, count) in shapes.iter().zip(counts) {
            for _ in 0..count {
                let charge = self.charge(*shape, op, parts)?;
                if charges.iter().any(|other| (other.shape, other.bucket) == (charge.shape, charge.bucket)) {
                    return Err(format!("{op:?} charges bucket {} twice", charge.bucket + 1));
                }
                charges.push(charge);
            }
        }
        if charges.is_empty() {
            return Err(format!("{op:?} has no charge"));
        }
        let details = self.script == ScriptKind::Everything;
        let permit = (details && op.has_permit()).then(|| parts.text()).transpose()?;
        let spent = if details && op.has_spend_time() { parts.spent()? } else { Spent::Unknown };
        let mut markers = Vec::new();
        if op.has_markers() {
            let bucket = self.bucket(Shape::Quota, parts)?;
            if op == Op::Settle {
                markers.push((bucket, 0));
                for (position, amount) in amounts(parts.text()?)?.into_iter().enumerate() {
                    markers.push((self.amount_of(bucket, position + 1), amount));
                }
            } else {
                markers.push((bucket, parts.int()?));
            }
        }
        Ok(Question { op, charges, permit, spent, markers })
    }

    fn charge(&mut self, shape: Shape, op: Op, parts: &mut Parts<'_, '_>) -> Result<Charge, String> {
        let bucket = self.bucket(shape, parts)?;
        let place = parts.place()?;
        if place < self.first_limit
            || place >= self.first
            || !(place - self.first_limit).is_multiple_of(LIMIT_NUMBERS)
        {
            return Err(format!("place {} is not that of a limit", place + 1));
        }
        let (limit, bounds) = self.limit(shape, &mut parts.from(place))?;
        let cost = parts.within("cost", if op == Op::Settle { -LAST_US } else { 0 }, LAST_US)?;
        Ok(Charge { shape, bucket, limit, cost, bounds })
    }

    /// The index of the amount of a charge in a tombstone.
    fn amount_of(&mut self, marker: usize, charge: usize) -> usize {
        let id = BucketId { name: charge.to_string(), ..self.buckets[marker].clone() };
        let known = self.buckets.iter().position(|known| *known == id);
        known.unwrap_or_else(|| {
            self.buckets.push(id);
            self.buckets.len() - 1
        })
    }

    /// The index of a bucket of this shape.
    fn bucket(&self, shape: Shape, parts: &mut Parts<'_, '_>) -> Result<usize, String> {
        let index = parts.place()?;
        let fits = match shape {
            Shape::Concurrency => index < self.sets,
            _ => self.buckets.get(index).is_some_and(|bucket| bucket.shape == shape),
        };
        if fits { Ok(index) } else { Err(format!("bucket {} is not a {shape:?}", index + 1)) }
    }

    fn limit(
        &mut self,
        shape: Shape,
        parts: &mut Parts<'_, '_>,
    ) -> Result<(PlainLimit, Option<[i128; BOUNDS]>), String> {
        let capacity = parts.within("capacity", 1, LAST_US)?;
        let (mut rate, mut bounds, mut hold) = (None, None, 0);
        match shape {
            Shape::Rate => rate = Some(parts.rate()?),
            Shape::Quota => bounds = Some(self.bounds(parts)?),
            Shape::Concurrency => hold = parts.within("hold time", 1, LAST_US / 1_000)? * 1_000,
        }
        let keep_ms = parts.within("keep time", 1, LAST_US)?;
        let debt = parts.within("debt", 0, LAST_US)?;
        let quantum = parts.within("quantum", 1, LAST_US)?;
        Ok((PlainLimit { capacity, rate, keep_ms, debt, quantum, hold }, bounds))
    }

    fn bounds(&mut self, parts: &mut Parts<'_, '_>) -> Result<[i128; BOUNDS], String> {
        let place = parts.place()?;
        if place < self.last || !(place - self.last).is_multiple_of(BOUNDS) {
            return Err(format!("place {} is not that of windows", place + 1));
        }
        if !self.quotas.contains(&place) {
            self.quotas.push(place);
        }
        let mut parts = parts.from(place);
        let mut bounds = [0; BOUNDS];
        for bound in &mut bounds {
            *bound = parts.within("bound", 0, LAST_US)?;
        }
        // Windows at either end of time are cut.
        let ordered =
            |pair: &[i128]| pair[0] < pair[1] || pair[0] == pair[1] && (pair[0] == 0 || pair[0] == LAST_US);
        if bounds.windows(2).all(ordered) {
            Ok(bounds)
        } else {
            Err(format!("windows {bounds:?} are not in order"))
        }
    }
}
