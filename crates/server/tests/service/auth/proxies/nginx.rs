//! nginx, by `auth_request`.

use std::process::Command;

use super::promises::Kind;
use super::{Site, blocks, system};

const NGINX: Kind = Kind { heading: "nginx", command, refusal: 429, while_down: 500 };

/// nginx with the headers of an ingress-nginx: those that the controller sets, and those of the guide's `ConfigMap`.
const INGRESS_NGINX: Kind =
    Kind { heading: "ingress-nginx", command: command_of_ingress, refusal: 403, while_down: 500 };

fn command(site: &Site, section: &str) -> Command {
    nginx(site, blocks(section, "nginx")[0])
}

fn command_of_ingress(site: &Site, section: &str) -> Command {
    let (_, data) = blocks(section, "yaml")[0].split_once("\ndata:\n").expect("the guide shows a ConfigMap");
    let (data, _) = data.split_once("---").expect("an Ingress follows");
    let header = |line: &str| format!("proxy_set_header {};", line.trim().replacen(':', "", 1));
    let headers: Vec<String> = data.lines().map(header).collect();
    nginx(
        site,
        &format!(
            "server {{
  listen 0.0.0.0:8000;
  location / {{ auth_request /auth; proxy_pass http://127.0.0.1:3000; }}
  location = /auth {{
    internal;
    proxy_pass http://127.0.0.1:8080/v1/auth?denyStatus=403;
    proxy_pass_request_body off;
    proxy_set_header Content-Length \"\";
    proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
    proxy_set_header X-Original-Method $request_method;
    proxy_set_header X-Forwarded-For $remote_addr;
    {}
  }}
}}",
            headers.join("\n    ")
        ),
    )
}

/// nginx with these servers, and no file outside its folder.
fn nginx(site: &Site, servers: &str) -> Command {
    let (path, servers) = (site.folder.path().display(), site.filled(servers));
    let settings = format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
  fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
{servers}
}}"
    );
    let mut nginx = system("nginx");
    nginx.arg("-p").arg(site.folder.path()).arg("-c").arg(site.write("nginx.conf", &settings));
    nginx
}

#[tokio::test]
async fn nginx_lets_through_what_the_rules_allow_and_answers_429_itself() {
    NGINX.limits_by_the_rules().await;
}

#[tokio::test]
async fn nginx_is_not_fooled_about_which_request_it_asks_for() {
    NGINX.is_not_fooled().await;
}

#[tokio::test]
async fn nginx_passes_on_no_name_that_a_client_gives_itself() {
    NGINX.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn nginx_fails_closed_while_spile_is_down() {
    NGINX.fails_closed().await;
}

#[tokio::test]
async fn nginx_fails_open_if_told_to() {
    let (handler, place) = ("error_page 502 504 = @open;", "location @open { return 204; }");
    NGINX
        .fails_open(|section| {
            assert!(section.contains(handler) && section.contains(place), "the guide says so");
            section.replacen("        internal;\n", &format!("        internal;\n{handler}\n"), 1).replacen(
                "    location @limited",
                &format!("{place}\n    location @limited"),
                1,
            )
        })
        .await;
}

#[tokio::test]
async fn ingress_nginx_is_not_fooled_about_which_request_it_asks_for() {
    INGRESS_NGINX.is_not_fooled().await;
}

#[tokio::test]
async fn ingress_nginx_passes_on_no_name_that_a_client_gives_itself() {
    INGRESS_NGINX.believes_no_name_of_a_client().await;
}

#[tokio::test]
async fn ingress_nginx_fails_closed_while_spile_is_down() {
    INGRESS_NGINX.fails_closed().await;
}
