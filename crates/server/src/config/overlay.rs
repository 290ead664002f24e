//! The registry's part in a configuration.
//!
//! One entry that does not go together with the file must not take the others along. It is put in quarantine: kept,
//! told of, and not in force until it goes together again.

use std::sync::Arc;

use serde_json::Value;

use super::file::{ConfigFile, Faults};
use super::{Checked, Config, ConfigError, LoadError, check_unmatched, read};
use crate::registry::{Entries, Overlay, Quarantine, Which};

/// What a registry holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offered {
    pub(crate) entries: Arc<Entries>,
    /// What cannot be read as an entry.
    pub(crate) broken: Quarantine,
}

impl Config {
    /// Reads the file once more. One that an entry in force would not go together with is refused, like one that does
    /// not work by itself. Entries in quarantine come back if they go together with it.
    pub(crate) fn read_again(&self, offered: &Offered) -> Result<Self, LoadError> {
        let mut origin = self.origin.clone();
        if let Some(path) = &origin.path {
            (origin.stamp, origin.text) = read(path)?;
        }
        Ok(Self::build(origin)?.with_overlay_and(self.overlay.clone(), offered)?)
    }

    /// The same file with one entry put, or removed if there is no document. `offered` is what the registry then holds.
    pub(crate) fn with_change(
        &self,
        which: &Which,
        document: Option<Value>,
        offered: &Offered,
    ) -> Result<Self, ConfigError> {
        let mut overlay = self.overlay.clone();
        overlay.quarantine.remove(&which.to_string());
        let entries = Arc::make_mut(&mut overlay.entries);
        match document {
            Some(document) => entries.put(which.kind, &which.name, document),
            None => drop(entries.remove(which.kind, &which.name)),
        }
        self.with_overlay_and(overlay, offered)
    }

    /// The same file with all that a registry holds, except for what does not go together. If an entry in force has
    /// become such a one, the document that was in force stays.
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
                    return Err(faults.into_error(self.origin.name(), &self.origin.text));
                };
                let why = faults.first_message().unwrap_or_default();
                wrong.add(&entry, format!("the file does not go together with it: {why}"));
            }
            set_aside(&mut overlay, &wrong, standing);
        }
    }

    /// The same file with exactly these entries, and with those in quarantine that can come back without harm to them.
    fn with_overlay_and(&self, overlay: Overlay, offered: &Offered) -> Result<Self, ConfigError> {
        let (made, faults) = self.overlaid(overlay, Faults::default());
        if !faults.is_empty() {
            return Err(faults.into_error(self.origin.name(), &self.origin.text));
        }
        if made.quarantine().is_empty() {
            return Ok(made);
        }
        let harms = |all: &Self| all.quarantine().beyond(made.quarantine()).next().is_some();
        Ok(made.adopt(offered).ok().filter(|all| !harms(all)).unwrap_or(made))
    }

    /// The entry that brings the first of these faults into the file, or `None` if the file has it by itself.
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

    /// The same file, as it was read, with other entries of the registry. Only what entries can change is checked again:
    /// the files that the configuration names are left alone.
    fn overlaid(&self, overlay: Overlay, mut faults: Faults) -> (Self, Faults) {
        let origin = &self.origin;
        let file = ConfigFile::read(&origin.text, &origin.variables, &overlay, &mut faults);
        let mut route_files = self.route_files.clone();
        let policies =
            Checked::new(file.plans, file.rules, file.routes, file.tenants, &mut route_files, &mut faults);
        check_unmatched(file.unmatched.as_ref(), &policies.rules, &mut faults);
        let config = Self {
            listen: self.listen.clone(),
            http_tls: self.http_tls.clone(),
            hosts: self.hosts.clone(),
            store: self.store.clone(),
            admin: self.admin.clone(),
            clients: self.clients.clone(),
            forward_auth: self.forward_auth,
            unmatched_pass: self.unmatched_pass,
            observe: self.observe.clone(),
            grpc: self.grpc.clone(),
            resp: self.resp.clone(),
            gateway: self.gateway.clone(),
            route_files,
            origin: origin.clone(),
            overlay,
            plans: policies.plans,
            rules: policies.rules,
            routes: policies.routes,
            tenants: policies.tenants,
        };
        (config, faults)
    }
}

/// Takes entries out, or puts back what was in force under their names before.
fn set_aside(overlay: &mut Overlay, wrong: &Quarantine, standing: &Entries) {
    for (entry, why) in wrong.iter() {
        overlay.quarantine.add(entry, why);
        let Some(Which { kind, name }) = Which::parse(entry) else { continue };
        let entries = Arc::make_mut(&mut overlay.entries);
        match standing.get(kind, &name) {
            Some(before) if entries.get(kind, &name) != Some(before) => {
                entries.put(kind, &name, before.clone());
            }
            _ => drop(entries.remove(kind, &name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::registry::Kind;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("spile.toml"), text.to_owned(), []).expect("the file works")
    }

    fn offered(entries: &[(Kind, &str, Value)]) -> Offered {
        let mut all = Entries::default();
        for (kind, name, document) in entries {
            all.put(*kind, name, document.clone());
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
            all.put(Kind::Tenants, &format!("t{tenant}"), json!({"plan": "gold"}));
        }
        all.put(Kind::Tenants, "acme", json!({"plan": "pro"}));
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
        assert_eq!(adopted.entries().get(Kind::Plans, "gold"), Some(&good));
        assert_eq!(quarantined(&adopted.adopt(&first).expect("all of it works")), [""; 0]);
    }

    #[test]
    fn entries_that_the_file_does_not_go_together_with_are_found_among_many() {
        let file = "[[rules]]\nid = \"x\"\nplans = [\"pro\"]\ncost = 50\n[[rules]]\nid = \"y\"\n\
                    plans = [\"enterprise\"]\ncost = 300\n";
        let mut all = Entries::default();
        for plan in 0..40 {
            all.put(Kind::Plans, &format!("p{plan}"), json!({"refill": "1/s"}));
        }
        all.put(Kind::Plans, "pro", json!({"refill": "1/s"}));
        all.put(Kind::Plans, "enterprise", json!({"refill": "1/s"}));
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
