//! Pages in a browser reach no listener by a name of their own, and change nothing across sites.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use http::Method;
use spile_server::Config;

use crate::support::{Spile, TOKEN};

const EVIL: (&str, &str) = ("origin", "http://evil.example");

async fn with(file: &str) -> Spile {
    let token = ("SPILE_ADMIN_TOKEN".to_owned(), TOKEN.to_owned());
    let config = Config::parse(Path::new("spile.toml"), file.to_owned(), [token]);
    Spile::start_with(config.unwrap_or_else(|why| panic!("{why}"))).await
}

/// The status of the answer to these bytes.
async fn status_of(to: SocketAddr, request: String) -> String {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(to).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    });
    let answer = asked.await.expect("no panic");
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test]
async fn a_name_that_was_rebound_to_loopback_is_misdirected_on_both_listeners() {
    let spile = with("[listen]\nhosts = [\"spile.internal\"]\n").await;
    for (to, path) in [
        (spile.http, "/api/ping"),
        (spile.http, "/v1/auth/default"),
        (spile.http, "/nowhere"),
        (spile.admin, "/metrics"),
        (spile.admin, "/dashboard"),
        (spile.admin, "/dashboard/snapshot"),
        (spile.admin, "/livez"),
    ] {
        let refused =
            spile.send_to(to, Method::GET, path, &[("host", "evil.example:8080")], "").await.is(421);
        assert!(
            refused.text.contains("`evil.example:8080`") && refused.text.contains("listen.hosts"),
            "{refused:?}"
        );
        for host in ["localhost", "LOCALHOST.:1", "a.localhost", "127.8.8.8", "[::1]:80", "spile.internal:9"]
        {
            let answer = spile.send_to(to, Method::GET, path, &[("host", host)], "").await;
            assert_ne!(answer.status, 421, "{host} {path}");
        }
    }
}

#[tokio::test]
async fn every_way_to_name_the_host_is_looked_at() {
    let spile = with("").await;
    for to in [spile.http, spile.admin] {
        for (head, status) in [
            ("GET /nowhere HTTP/1.0\r\n\r\n", "404"),
            ("GET /nowhere HTTP/1.0\r\nHost: evil.example\r\n\r\n", "421"),
            ("GET /nowhere HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n\r\n", "421"),
            ("GET /nowhere HTTP/1.1\r\nConnection: close\r\nHost: localhost@evil.example\r\n\r\n", "421"),
            (
                "GET /nowhere HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
                "400",
            ),
            (
                "GET /nowhere HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
                "400",
            ),
            (
                "GET http://evil.example/nowhere HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n",
                "421",
            ),
            (
                "GET http://localhost/nowhere HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n\r\n",
                "421",
            ),
            ("GET http://localhost/nowhere HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n", "404"),
        ] {
            assert_eq!(status_of(to, head.to_owned()).await, status, "{head}");
        }
    }
}

#[tokio::test]
async fn a_page_of_another_site_spends_and_changes_nothing() {
    // Bound to all addresses, as in a container: the name is anybody's, the origin is not.
    let spile = with("[listen]\nhttp = \"0.0.0.0:0\"\nadmin = \"0.0.0.0:0\"\n").await;
    let loopback = |listener: SocketAddr| SocketAddr::from(([127, 0, 0, 1], listener.port()));
    let (http, admin) = (loopback(spile.http), loopback(spile.admin));
    let bearer = format!("Bearer {TOKEN}");
    let ask = async |to, method: Method, path: &str, field: (&str, &str)| {
        let fields = [("authorization", bearer.as_str()), ("content-type", "application/json"), field];
        let body = if method == Method::POST { r#"{"ruleId":"default","identity":"victim"}"# } else { "" };
        spile.send_to(to, method, path, &fields, body).await.status.as_u16()
    };
    let own = |to: SocketAddr| format!("http://{to}");
    for (to, method, path) in [
        (http, Method::POST, "/v1/check"),
        (http, Method::POST, "/v1/refund"),
        (http, Method::GET, "/api/ping"),
        (http, Method::GET, "/v1/auth/default"),
        (http, Method::GET, "/v1/auth"),
        (admin, Method::DELETE, "/admin/v1/buckets/victim"),
        (admin, Method::POST, "/admin/v1/config/reload"),
        (admin, Method::GET, "/dashboard/snapshot"),
        (admin, Method::GET, "/admin/v1/tenants"),
    ] {
        for foreign in [EVIL, ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert_eq!(ask(to, method.clone(), path, foreign).await, 403, "{method} {path} {foreign:?}");
        }
        let own = own(to);
        assert_ne!(ask(to, method.clone(), path, ("origin", own.as_str())).await, 403, "{method} {path}");
        assert_ne!(
            ask(to, method.clone(), path, ("sec-fetch-site", "same-origin")).await,
            403,
            "{method} {path}"
        );
    }
    for path in ["/dashboard", "/metrics", "/livez", "/readyz", "/openapi.json"] {
        let linked = ("sec-fetch-site", "cross-site");
        assert_eq!(ask(admin, Method::GET, path, linked).await, 200, "{path} may be linked to");
    }
}

#[tokio::test]
async fn a_trusted_proxy_asks_with_the_host_and_origin_of_its_client() {
    let spile = with("[clients]\ntrusted_proxies = [\"127.0.0.1/32\"]\n").await;
    let fields = [
        ("host", "shop.example"),
        ("origin", "https://partner.example"),
        ("sec-fetch-site", "cross-site"),
        ("x-original-method", "POST"),
        ("x-original-uri", "/cart"),
    ];
    spile.get("/v1/auth", &fields).await.is(200);
    spile.get("/v1/auth/default", &fields).await.is(200);
    // The exemption is for that call alone.
    for path in ["/api/ping", "/v1/authority", "/v1/check"] {
        spile.get(path, &fields).await.is(421);
    }
}
