//! The configuration that is in force, written as a file would have it. Secrets are left out.

use std::fmt;

use serde::Serialize;
use spile_core::Plan;
use spile_policy::{Rule, Tenant};

use super::bounds::BoundsSpec;
use super::gateway::GatewaySpec;
use super::tls::TlsSpec;
use super::toml_writer::{members, quoted};
use super::{Config, JwtConfig, PlanSpec, RouteConfig, RuleSpec, TenantSpec};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unmatched_pass {
            writeln!(f, "unmatched = \"pass\"\n")?;
        }
        writeln!(f, "[listen]")?;
        members(&self.listen, f)?;
        table("", &BoundsSpec::from(&self.listen.bounds), f)?;
        let tls = [
            ("[http.tls]", &self.http_tls),
            ("[admin.tls]", &self.admin.tls),
            ("[grpc.tls]", &self.grpc.tls),
            ("[resp.tls]", &self.resp.tls),
        ];
        for (header, tls) in tls {
            tls.as_ref().map_or(Ok(()), |tls| table(header, &TlsSpec::from(tls), f))?;
        }
        table("[store]", &self.store, f)?;
        if self.admin.token_file.is_some() || self.admin.registry_file.is_some() {
            table("[admin]", &self.admin, f)?;
        }
        // Timeouts of clients matter only if there is a listener for them.
        if self.listen.grpc.is_some() {
            table("[grpc]", &self.grpc, f)?;
        }
        if self.listen.resp.is_some() || self.resp.password_file.is_some() {
            table("[resp]", &self.resp, f)?;
        }
        table("[clients]", &self.clients, f)?;
        if self.forward_auth.proxy.is_some() {
            table("[forward_auth]", &self.forward_auth, f)?;
        }
        self.fmt_lists(f)?;
        table("[observe]", &self.observe, f)?;
        table("[log]", &self.log, f)?;
        self.observe.webhooks.iter().try_for_each(|hook| table("[[webhooks]]", &hook.spec, f))
    }
}

impl Config {
    fn fmt_lists(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plans.iter().try_for_each(|plan| writeln!(f, "{}", PlanToml(plan)))?;
        self.rules.iter().try_for_each(|rule| table("[[rules]]", &RuleSpec::from(rule), f))?;
        self.tenants.iter().try_for_each(|tenant| show_tenant(tenant, f))?;
        if self.listen.gateway.is_some() || !self.routes.is_empty() || self.gateway.jwt.is_some() {
            writeln!(f, "[gateway]")?;
            members(&BoundsSpec::from(&self.gateway.bounds), f)?;
            table("", &GatewaySpec::from(&self.gateway), f)?;
        }
        self.routes.iter().try_for_each(|route| write!(f, "{route}"))
    }
}

impl fmt::Display for RouteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table("[[routes]]", &self.spec, f)
    }
}

impl fmt::Display for JwtConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        members(&self.spec, f)
    }
}

/// A plan as a file has it.
pub(crate) struct PlanToml<'a>(pub(crate) &'a Plan);

impl fmt::Display for PlanToml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[plans.{}]", quoted(self.0.name().as_str()))?;
        members(&PlanSpec { name: None, ..PlanSpec::from(self.0) }, f)
    }
}

/// A rule as a file has it, without members that have their default.
pub(crate) struct RuleToml<'a>(pub(crate) &'a Rule);

impl fmt::Display for RuleToml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[[rules]]")?;
        members(&RuleSpec::from(self.0).without_defaults(), f)
    }
}

/// Writes a table and an empty line. Without a header, it continues the table before.
fn table(header: &str, value: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !header.is_empty() {
        writeln!(f, "{header}")?;
    }
    members(value, f)?;
    writeln!(f)
}

/// Leaves out hashes of API keys, which a reader of the configuration does not need.
fn show_tenant(tenant: &Tenant, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "[[tenants]]")?;
    members(&TenantSpec::from(tenant), f)?;
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

    /// Shows the first line that differs, because a whole file is too long to read.
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
            "quota = 5\nper = \"month\"\n",
            "zone = \"Europe/Berlin\"\nanchor = 31\ndebt = 7\n",
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
            // The folder does not exist, so no file that the configuration names is read.
            let parse = |text| Config::parse(Path::new("/nowhere/spile.toml"), text, []);
            match parse(text) {
                Ok(config) => {
                    let shown = config.to_string();
                    let again = parse(shown.clone()).unwrap_or_else(|why| panic!("{why}\n{shown}"));
                    // Comments show the number of hidden secrets.
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
