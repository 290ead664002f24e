//! Apache, by `mod_lua` and `LuaSocket`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks, system};

const APACHE: Kind = Kind { heading: "Apache", command, refusal: 429, while_down: 503 };
/// The modules that Debian's Apache does not have built in.
const MODULES: [&str; 5] = ["mpm_event", "authz_core", "lua", "proxy", "proxy_http"];

/// Apache with the guide's settings in its only virtual host, and no file outside its folder.
fn command(site: &Site, section: &str) -> Command {
    let folder = site.folder.path();
    // A server that root starts goes on as another user, who has to read the Lua file.
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("the folder is ours");
    let lua = site.write("spile.lua", &site.filled(blocks(section, "lua")[0]));
    let host = site.filled(blocks(section, "apacheconf")[0]);
    let host = host
        .replace("/etc/apache2/spile.lua", &lua.display().to_string())
        .replace("x86_64-linux-gnu", &format!("{}-linux-gnu", std::env::consts::ARCH));
    let module = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules = MODULES.map(module).concat();
    let (path, front) = (folder.display(), site.front);
    let settings = format!(
        "{modules}ServerName shop\nListen {front}\nPidFile {path}/pid\nErrorLog /dev/stderr\nMutex fcntl:{path}\n\
         User nobody\nGroup nogroup\n<VirtualHost {front}>\n{host}</VirtualHost>\n"
    );
    let mut apache = system("apache2");
    apache.arg("-X").arg("-d").arg(folder).arg("-f").arg(site.write("apache2.conf", &settings));
    apache
}

#[tokio::test]
async fn apache_lets_through_what_the_rules_allow_and_hands_on_the_429_with_its_header_fields() {
    APACHE
        .limits_by_the_rules()
        .await
        .carries("ratelimit", "\"login\";r=0;t=60")
        .carries("x-ratelimit-remaining", "0")
        .carries("cache-control", "no-store");
}

#[tokio::test]
async fn apache_is_not_fooled_about_which_request_it_asks_for() {
    APACHE.is_not_fooled().await;
}

#[tokio::test]
async fn apache_passes_on_no_name_that_a_client_gives_itself() {
    APACHE.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn apache_knows_tenants_by_their_keys() {
    APACHE.passes_on_the_key_of_a_tenant().await;
}

#[tokio::test]
async fn apache_fails_closed_while_spile_is_down() {
    APACHE.fails_closed().await;
}

#[tokio::test]
async fn apache_fails_open_if_told_to() {
    APACHE
        .fails_open(|section| {
            let (closed, open) = ("return 503", "return apache2.DECLINED");
            assert!(section.contains(&format!("replace `{closed}` by `{open}`")), "the guide says so");
            section.replacen(closed, open, 1)
        })
        .await;
}
