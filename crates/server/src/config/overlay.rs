//! The registry's part of a configuration.
//!
//! An entry that conflicts with the file must not void the others. It is put in quarantine: kept,
//! reported, and not in force until the conflict ends.

use std::sync::Arc;

use foldhash::HashSet;

use super::source::{Faults, Location};
use super::spec::{OfKind, Spec};
use super::{Checked, Config, ConfigError, LoadError, check_unmatched, read};
use crate::registry::{Entries, EntryId, Kind, Overlay, Quarantine};

/// The entries of a registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offered {
    pub(crate) entries: Arc<Entries>,
    /// Documents that cannot be read as an entry.
    pub(crate) broken: Quarantine,
}

impl Config {
    /// Reads the file again. It is refused if it is invalid, or if an entry in force conflicts with it. Entries in quarantine come back
    /// if they no longer conflict.
    pub(crate) fn read_again(&self, offered: &Offered) -> Result<Self, LoadError> {
        let mut origin = self.origin.clone();
        if let Some(path) = &origin.path {
            (origin.stamp, origin.text) = read(path)?;
            // An editor or a full disk may leave an empty file, and all limits would be lost.
            if says_nothing(&origin.text) && !says_nothing(&self.origin.text) {
                return Err(LoadError::Emptied(path.display().to_string()));
            }
        }
        Ok(Self::build(origin)?.with_overlay_and(self.overlay.clone(), offered)?)
    }

    /// Returns the file with one entry put, or removed if `spec` is `None`. `offered` is what the registry then holds.
    pub(crate) fn with_change(
        &self,
        which: &EntryId,
        spec: Option<Arc<Spec>>,
        offered: &Offered,
    ) -> Result<Self, ConfigError> {
        let mut overlay = self.overlay.clone();
        overlay.quarantine.remove(&which.to_string());
        Arc::make_mut(&mut overlay.entries).set(which, spec);
        self.with_overlay_and(overlay, offered)
    }

    /// Returns the file with all entries of a registry, except for those that conflict. If an entry in force has come to conflict, the
    /// document that was in force stays.
    pub(crate) fn adopt(&self, offered: &Offered) -> Result<Self, ConfigError> {
        let standing = &self.overlay.entries;
        let mut overlay = Overlay { entries: Arc::clone(&offered.entries), ..Overlay::default() };
        set_aside(&mut overlay, &offered.broken, standing);
        loop {
            let (config, mut faults) = self.overlaid(overlay.clone(), Faults::sparing_entries());
            let mut wrong = faults.take_quarantine();
            if wrong.is_empty() {
                if faults.is_empty() {
                    return Ok(config);
                }
                let Some(entry) = self.culprit(&overlay, &faults) else {
                    return Err(faults.into_error(&self.origin));
                };
                let why = faults.first_message().unwrap_or_default();
                wrong.add(&entry, format!("it conflicts with the file: {why}"));
            }
            set_aside(&mut overlay, &wrong, standing);
        }
    }

    /// Returns the file with exactly these entries, and with those in quarantine that no longer conflict.
    fn with_overlay_and(&self, overlay: Overlay, offered: &Offered) -> Result<Self, ConfigError> {
        let (made, faults) = self.overlaid(overlay, Faults::default());
        if !faults.is_empty() {
            return Err(faults.into_error(&self.origin));
        }
        if made.quarantine().is_empty() {
            return Ok(made);
        }
        let harms = |all: &Self| all.quarantine().beyond(made.quarantine()).next().is_some();
        Ok(made.adopt(offered).ok().filter(|all| !harms(all)).unwrap_or(made))
    }

    /// The entry that causes the first of these faults, or `None` if the file has it by itself.
    fn culprit(&self, overlay: &Overlay, faults: &Faults) -> Option<String> {
        let is_there = |count| {
            let part = Overlay {
                entries: Arc::new(overlay.entries.first(count)),
                quarantine: overlay.quarantine.clone(),
            };
            self.overlaid(part, Faults::sparing_entries()).1.have_first_of(faults)
        };
        if is_there(0) {
            return None;
        }
        let (mut without, mut with) = (0, overlay.entries.len());
        while without + 1 < with {
            let half = usize::midpoint(without, with);
            if is_there(half) { with = half } else { without = half }
        }
        overlay.entries.iter().nth(without).map(|(kind, name, _)| format!("{kind}/{name}"))
    }

    /// Returns the file with other entries of the registry. Nothing is read again: neither the file nor the files that it names.
    fn overlaid(&self, overlay: Overlay, mut faults: Faults) -> (Self, Faults) {
        let mut route_files = self.route_files.clone();
        let Checked { plans, rules, routes, tenants } =
            Checked::new(&self.specs, &overlay, &mut route_files, &mut faults);
        check_unmatched(self.specs.unmatched.as_deref(), &rules, &mut faults);
        let config = Self {
            listen: self.listen.clone(),
            http_tls: self.http_tls.clone(),
            store: self.store.clone(),
            admin: self.admin.clone(),
            clients: self.clients.clone(),
            forward_auth: self.forward_auth,
            unmatched_pass: self.unmatched_pass,
            observe: self.observe.clone(),
            log: self.log.clone(),
            grpc: self.grpc.clone(),
            resp: self.resp.clone(),
            gateway: self.gateway.clone(),
            specs: Arc::clone(&self.specs),
            origin: self.origin.clone(),
            route_files,
            overlay,
            plans,
            rules,
            routes,
            tenants,
        };
        (config, faults)
    }
}

/// A plan, rule or tenant, and where it is defined.
#[derive(Debug)]
pub(super) struct Defined<'a, T> {
    pub(super) spec: &'a T,
    pub(super) name: Option<&'a str>,
    /// Its index in the list of the file. `None` if it is an entry of the registry.
    pub(super) index: Option<usize>,
    kind: Kind,
}

impl<'a, T: OfKind> Defined<'a, T> {
    /// Every entry of a kind. An entry of the registry replaces the file's entry of the same name, or follows them.
    ///
    /// A tenant whose entry is in quarantine is not taken from the file either: the entry may have revoked keys that the file still
    /// lists.
    pub(super) fn all(file: &'a [T], overlay: &'a Overlay) -> Vec<Self> {
        let kind = T::KIND;
        let entry = |name: &'a str| overlay.entries.get(kind, name).and_then(|spec| T::of(spec));
        let entries = overlay.entries.of_kind(kind);
        let hidden: HashSet<&str> = match kind {
            Kind::Tenants => overlay.quarantine.names(kind).filter(|name| entry(name).is_none()).collect(),
            Kind::Plans | Kind::Rules => HashSet::default(),
        };
        let (mut all, mut names) = (Vec::with_capacity(file.len() + entries.len()), HashSet::default());
        for (index, spec) in file.iter().enumerate() {
            let name = spec.name();
            // Of two with the same name, the first is replaced.
            let entry = name.filter(|name| names.insert(*name)).and_then(entry);
            match entry {
                Some(spec) => all.push(Self { spec, name, index: None, kind }),
                None if name.is_some_and(|name| hidden.contains(name)) => {}
                None => all.push(Self { spec, name, index: Some(index), kind }),
            }
        }
        let new = entries.iter().filter(|(name, _)| !names.contains(name.as_str()));
        all.extend(new.filter_map(|(name, spec)| {
            Some(Self { spec: T::of(spec)?, name: Some(name), index: None, kind })
        }));
        all
    }
}

impl<T> Defined<'_, T> {
    /// Its location: in the list of the file, or as an entry of the registry.
    pub(super) fn at<'b>(&'b self, list: &'b Location<'b>) -> Location<'b> {
        match self.index {
            Some(index) => list.item(index),
            None => Location::entry(self.kind, self.name.unwrap_or_default()),
        }
    }
}

/// Removes entries, or restores the documents that were in force under their names.
fn set_aside(overlay: &mut Overlay, wrong: &Quarantine, standing: &Entries) {
    for (entry, why) in wrong.iter() {
        overlay.quarantine.add(entry, why);
        let Some(EntryId { kind, name }) = EntryId::parse(entry) else { continue };
        let entries = Arc::make_mut(&mut overlay.entries);
        let before = standing.get(kind, &name).filter(|before| entries.get(kind, &name) != Some(before));
        entries.set(&EntryId { kind, name }, before.cloned());
    }
}

/// True for a file without any setting.
fn says_nothing(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("spile.toml"), text.to_owned(), []).expect("the file works")
    }

    fn put(entries: &mut Entries, kind: Kind, name: &str, document: &Value) {
        let which = EntryId { kind, name: name.to_owned() };
        let spec = Spec::read_text(&which, document.to_string().as_bytes()).expect("it can be read");
        entries.set(&which, Some(Arc::new(spec)));
    }

    fn offered(entries: &[(Kind, &str, Value)]) -> Offered {
        let mut all = Entries::default();
        for (kind, name, document) in entries {
            put(&mut all, *kind, name, document);
        }
        Offered { entries: Arc::new(all), broken: Quarantine::default() }
    }

    fn quarantined(config: &Config) -> Vec<&str> {
        config.quarantine().iter().map(|(entry, _)| entry).collect()
    }

    #[test]
    fn what_names_an_entry_in_quarantine_follows_it() {
        let offered = offered(&[
            (Kind::Plans, "gold", json!({"capacity": 0, "refill": "1/s"})),
            (Kind::Rules, "a", json!({"plans": ["gold"]})),
            (Kind::Rules, "b", json!({"plans": ["pro"], "also": ["a"]})),
            (Kind::Rules, "c", json!({"plans": ["pro"]})),
            (Kind::Tenants, "acme", json!({"plan": "gold"})),
        ]);
        let adopted = config("").adopt(&offered).expect("the rest works");
        assert_eq!(quarantined(&adopted), ["plans/gold", "rules/a", "rules/b", "tenants/acme"]);
        assert!(adopted.entries().get(Kind::Rules, "c").is_some());
    }

    #[test]
    fn a_hundred_thousand_tenants_on_a_plan_that_is_gone_are_found_at_once() {
        let mut all = Entries::default();
        for tenant in 0..3_000 {
            put(&mut all, Kind::Tenants, &format!("t{tenant}"), &json!({"plan": "gold"}));
        }
        put(&mut all, Kind::Tenants, "acme", &json!({"plan": "pro"}));
        let offered = Offered { entries: Arc::new(all), broken: Quarantine::default() };
        let adopted = config("").adopt(&offered).expect("the rest works");
        assert_eq!((adopted.quarantine().len(), adopted.tenants.len()), (3_000, 1));
    }

    #[test]
    fn a_tenant_in_quarantine_takes_no_key_away_from_another() {
        let keys = json!([format!("sha256:{}", "ab".repeat(32))]);
        let offered = offered(&[
            (Kind::Tenants, "a", json!({"plan": "gold", "apiKeys": keys})),
            (Kind::Tenants, "b", json!({"plan": "pro", "apiKeys": keys})),
        ]);
        let adopted = config("").adopt(&offered).expect("the rest works");
        assert_eq!(quarantined(&adopted), ["tenants/a"]);
    }

    #[test]
    fn of_an_entry_that_stops_working_the_document_before_stays_in_force() {
        let good = json!({"capacity": 5, "refill": "1/s"});
        let acme = (Kind::Tenants, "acme", json!({"plan": "gold"}));
        let first = offered(&[(Kind::Plans, "gold", good.clone()), acme.clone()]);
        let adopted = config("").adopt(&first).expect("all of it works");
        let second = offered(&[(Kind::Plans, "gold", json!({"capacity": 0, "refill": "1/s"})), acme]);
        let adopted = adopted.adopt(&second).expect("the rest works");
        assert_eq!(quarantined(&adopted), ["plans/gold"]);
        let standing = adopted.entries().get(Kind::Plans, "gold").map(|spec| spec.to_json());
        assert_eq!(standing, Some(good));
        assert_eq!(quarantined(&adopted.adopt(&first).expect("all of it works")), [""; 0]);
    }

    #[test]
    fn entries_that_the_file_does_not_go_together_with_are_found_among_many() {
        let file = "[[rules]]\nid = \"x\"\nplans = [\"pro\"]\ncost = 50\n[[rules]]\nid = \"y\"\n\
                    plans = [\"enterprise\"]\ncost = 300\n";
        let mut all = Entries::default();
        for plan in 0..40 {
            put(&mut all, Kind::Plans, &format!("p{plan}"), &json!({"refill": "1/s"}));
        }
        put(&mut all, Kind::Plans, "pro", &json!({"refill": "1/s"}));
        put(&mut all, Kind::Plans, "enterprise", &json!({"refill": "1/s"}));
        let offered = Offered { entries: Arc::new(all), broken: Quarantine::default() };
        let adopted = config(file).adopt(&offered).expect("the rest works");
        assert_eq!(quarantined(&adopted), ["plans/enterprise", "plans/pro"]);
    }

    #[test]
    fn a_rule_for_what_must_pass_gives_way_to_the_file() {
        let offered = offered(&[(Kind::Rules, "default", json!({"plans": ["pro"]}))]);
        let adopted = config("unmatched = \"pass\"\n").adopt(&offered).expect("the file works");
        assert_eq!(quarantined(&adopted), ["rules/default"]);
        assert!(adopted.unmatched_pass && adopted.rules.is_empty());
    }
}
