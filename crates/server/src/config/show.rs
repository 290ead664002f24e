//! The configuration that is in force, written as a file would have it. Secrets are left out.

use std::fmt::{self, Write};

use spile_core::{Limit, Plan};
use spile_policy::{Rule, RulePlans, Tenant};

use super::quoted::{Quoted, QuotedList};
use super::{Config, TimeOf, bounds};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unmatched_pass {
            writeln!(f, "unmatched = \"pass\"\n")?;
        }
        self.show_listen(f)?;
        self.show_store(f)?;
        self.show_grpc(f)?;
        self.show_resp(f)?;
        self.show_clients(f)?;
        self.plans.iter().try_for_each(|plan| show_plan(f, plan))?;
        self.rules.iter().try_for_each(|rule| show_rule(f, rule))?;
        self.tenants.iter().try_for_each(|tenant| show_tenant(f, tenant))?;
        if self.shows_gateway() {
            write!(f, "{}", self.gateway)?;
        }
        self.routes.iter().try_for_each(|route| write!(f, "{route}"))?;
        self.show_observe(f)
    }
}

impl Config {
    /// What the gateway puts up with is of interest where there is one.
    const fn shows_gateway(&self) -> bool {
        self.listen.gateway.is_some() || !self.routes.is_empty() || self.gateway.jwt.is_some()
    }

    fn show_listen(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listen = &self.listen;
        writeln!(f, "[listen]\nhttp = \"{}\"\nadmin = \"{}\"", listen.http, listen.admin)?;
        let optional = [("grpc", listen.grpc), ("resp", listen.resp), ("gateway", listen.gateway)];
        for (name, address) in optional {
            if let Some(address) = address {
                writeln!(f, "{name} = \"{address}\"")?;
            }
        }
        if !self.hosts.is_empty() {
            writeln!(f, "hosts = {}", QuotedList(&self.hosts))?;
        }
        bounds::show(&listen.bounds, f)?;
        writeln!(f)?;
        let tls = [
            ("http", &self.http_tls),
            ("admin", &self.admin.tls),
            ("grpc", &self.grpc.tls),
            ("resp", &self.resp.tls),
        ];
        tls.into_iter().try_for_each(|(name, tls)| tls.as_ref().map_or(Ok(()), |tls| tls.show(name, f)))
    }

    fn show_store(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = &self.store;
        writeln!(f, "[store]\nurl = {}\nprefix = {}", Quoted(&store.url), Quoted(&store.prefix))?;
        writeln!(f, "timeout = \"{}\"", humantime::format_duration(store.timeout))?;
        writeln!(f, "on_failure = \"{}\"", store.on_failure)?;
        let wait = humantime::format_duration(store.fail_closed_retry_after);
        writeln!(f, "fail_closed_retry_after = \"{wait}\"\nreplicas = {}", store.replicas)?;
        writeln!(
            f,
            "connections = {}\nflights = {}\nqueue = {}",
            store.connections, store.flights, store.queue
        )?;
        let time = if store.time == TimeOf::Server { "server" } else { "client" };
        writeln!(f, "time = \"{time}\"")?;
        writeln!(f, "max_keys = {}", store.max_keys)?;
        if let Some(path) = &store.path {
            writeln!(f, "path = {}", Quoted(path.display()))?;
        }
        writeln!(f, "save_every = \"{}\"\n", humantime::format_duration(store.save_every))?;
        let files = [("token", &self.admin.token_file), ("registry", &self.admin.registry_file)];
        if files.iter().all(|(_, file)| file.is_none()) {
            return Ok(());
        }
        writeln!(f, "[admin]")?;
        for (name, path) in files {
            if let Some(path) = path {
                writeln!(f, "{name}_file = {}", Quoted(path.display()))?;
            }
        }
        writeln!(f)
    }

    fn show_grpc(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.listen.grpc.is_none() {
            return Ok(());
        }
        writeln!(f, "[grpc]\ntimeout = \"{}\"\n", humantime::format_duration(self.grpc.timeout))
    }

    /// How long its clients may be idle is of interest where there are any.
    fn show_resp(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resp = &self.resp;
        if self.listen.resp.is_none() && resp.password_file.is_none() {
            return Ok(());
        }
        writeln!(f, "[resp]")?;
        if let Some(path) = &resp.password_file {
            writeln!(f, "password_file = {}", Quoted(path.display()))?;
        }
        writeln!(f, "idle_timeout = \"{}\"\n", humantime::format_duration(resp.idle_timeout))
    }

    fn show_observe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[observe]\nenabled = {}", self.observe.enabled)?;
        writeln!(f, "show_keys = {}", self.observe.show_keys)?;
        if let Some(otlp) = &self.observe.otlp {
            writeln!(f, "otlp = {}\notlp_percent = {}", Quoted(&otlp.endpoint), otlp.percent)?;
        }
        writeln!(f)?;
        for hook in &self.observe.webhooks {
            let (url, secret_file) = (Quoted(&hook.url), Quoted(&hook.secret_file));
            writeln!(f, "[[webhooks]]\nurl = {url}\nsecret_file = {secret_file}")?;
            writeln!(f, "events = {}\nallow_private = {}\n", QuotedList(&hook.events), hook.allow_private)?;
        }
        Ok(())
    }

    fn show_clients(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = &self.clients;
        writeln!(f, "[clients]\ntrusted_proxies = {}", QuotedList(&clients.trusted_words))?;
        writeln!(
            f,
            "ipv6_prefix = {}\nprincipal_header = \"{}\"\n",
            clients.ipv6_prefix, clients.principal_header
        )?;
        match self.forward_auth.proxy {
            Some(proxy) => writeln!(f, "[forward_auth]\nproxy = \"{proxy}\"\n"),
            None => Ok(()),
        }
    }
}

fn show_plan(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    writeln!(f, "[plans.{}]", Quoted(plan.name()))?;
    match plan.limits() {
        [only] if only.name().as_str() == plan.name().as_str() => {
            writeln!(f, "capacity = {}\nrefill = \"{}\"\n", only.limit().capacity(), refill(only.limit()))
        }
        limits => {
            writeln!(f, "limits = [")?;
            for limit in limits {
                let own = limit.own_name();
                let (capacity, refill) = (limit.limit().capacity(), refill(limit.limit()));
                writeln!(f, "  {{ name = \"{own}\", capacity = {capacity}, refill = \"{refill}\" }},")?;
            }
            writeln!(f, "]\n")
        }
    }
}

/// The part of a limit after its capacity: `1/s`.
pub(crate) fn refill(limit: &Limit) -> String {
    let text = limit.to_string();
    text.split_once(", ").map_or_else(|| text.clone(), |(_, refill)| refill.to_owned())
}

fn show_rule(f: &mut fmt::Formatter<'_>, rule: &Rule) -> fmt::Result {
    writeln!(f, "[[rules]]")?;
    show_rule_body(f, rule)
}

/// A rule without the name of its table.
pub(super) fn show_rule_body(f: &mut fmt::Formatter<'_>, rule: &Rule) -> fmt::Result {
    writeln!(f, "id = \"{}\"", rule.id)?;
    let mut parts = Vec::new();
    if let Some(path) = &rule.matcher.path {
        parts.push(format!("path = {}", Quoted(path)));
    }
    if !rule.matcher.hosts.is_empty() {
        parts.push(format!("hosts = {}", QuotedList(&rule.matcher.hosts)));
    }
    if !rule.matcher.methods.is_empty() {
        parts.push(format!("methods = {}", QuotedList(&rule.matcher.methods)));
    }
    if let Some(descriptor) = &rule.matcher.descriptor {
        let (domain, entries) = (Quoted(&descriptor.domain), QuotedList(&descriptor.entries));
        let subset = if descriptor.subset { ", subset = true" } else { "" };
        parts.push(format!("domain = {domain}, entries = {entries}{subset}"));
    }
    if !parts.is_empty() {
        writeln!(f, "match = {{ {} }}", parts.join(", "))?;
    }
    if rule.matcher.descriptor.is_none() {
        writeln!(f, "key = {}", QuotedList(rule.key.words()))?;
    }
    match &rule.plans {
        RulePlans::Listed(plans) => writeln!(f, "plans = {}", QuotedList(plans))?,
        RulePlans::Unlimited => writeln!(f, "plans = \"unlimited\"")?,
        RulePlans::Banned => writeln!(f, "plans = \"banned\"")?,
        RulePlans::Tenant { anonymous } => {
            writeln!(f, "plans = \"tenant\"")?;
            if let Some(plan) = anonymous {
                writeln!(f, "anonymous_plan = \"{plan}\"")?;
            }
        }
    }
    writeln!(f, "cost = {}\nmode = \"{}\"", rule.cost.get(), if rule.shadow { "shadow" } else { "enforce" })?;
    if let Some(policy) = rule.on_failure {
        writeln!(f, "on_failure = \"{policy}\"")?;
    }
    if !rule.also.is_empty() {
        writeln!(f, "also = {}", QuotedList(&rule.also))?;
    }
    f.write_char('\n')
}

/// Hashes of keys are no keys, but whoever reads a configuration over somebody's shoulder needs neither.
fn show_tenant(f: &mut fmt::Formatter<'_>, tenant: &Tenant) -> fmt::Result {
    writeln!(f, "[[tenants]]\nid = {}\nplan = \"{}\"", Quoted(&tenant.id), tenant.plan)?;
    for limit in tenant.own_limits() {
        let (name, capacity) = (limit.own_name(), limit.limit().capacity());
        writeln!(
            f,
            "limits.\"{name}\" = {{ capacity = {capacity}, refill = \"{}\" }}",
            refill(limit.limit())
        )?;
    }
    writeln!(f, "# {} API keys, not shown\n", tenant.api_keys.len())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_mistake_next_to_letters_of_several_bytes_is_told() {
        for letters in ["\u{fffd}", "\u{e9}", "\u{1f680}"] {
            for text in
                [format!("save = 1 {}", letters.repeat(9)), format!("a = {letters}{letters}\n[{letters}")]
            {
                let why =
                    Config::parse(Path::new("spile.toml"), text, []).expect_err("it is no TOML").to_string();
                assert!(why.contains("spile.toml:1:"), "{why}");
            }
        }
    }

    /// Shows the first line that differs, for a whole file is too long to look at.
    fn similar(one: &str, other: &str) {
        let differ = one.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert!(differ.is_none() && one.lines().count() == other.lines().count(), "{differ:?}");
    }

    #[test]
    fn fuzzed_files_are_refused_with_a_place_or_shown_as_a_file_that_says_the_same() {
        let words = [
            "[plans]\n",
            "[[rules]]\n",
            "[[tenants]]\n",
            "[[routes]]\n",
            "id = \"a\"\n",
            "plans = [\"free\"]\n",
            "\\u001b",
            "refill = \"1/s\"\n",
            "match = { path = \"/a/*\" }\n",
            "key = [\"ip\"]\n",
            "\"\"\"",
            "'",
            "#",
            "{",
            "é",
        ];
        spile_testkit::fuzz::fuzz("config", &words, |bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            // A folder that is not there: no file that a configuration may name is read.
            let parse = |text| Config::parse(Path::new("/nowhere/spile.toml"), text, []);
            match parse(text) {
                Ok(config) => {
                    let shown = config.to_string();
                    let again = parse(shown.clone()).unwrap_or_else(|why| panic!("{why}\n{shown}"));
                    // Comments tell how many secrets are not shown.
                    let said = |text: &str| {
                        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
                    };
                    similar(&said(&again.to_string()), &said(&shown));
                    Ok((config.plans.len(), config.rules.len(), config.routes.len(), config.tenants.len()))
                }
                Err(why) => {
                    let why = why.to_string();
                    assert!(why.contains("spile.toml:"), "{why}");
                    Err(why.matches("error").count().min(8))
                }
            }
        });
    }
}
