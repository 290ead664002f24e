//! A real nginx as the upstream.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use spile_testkit::redis::free_port;
use tempfile::TempDir;

use crate::support::{open, running, to, until};

/// An nginx that stops when it is dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Nginx {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        fs::write(folder.path().join("page.txt"), "a page of nginx's\n".repeat(10_000)).unwrap();
        fs::write(folder.path().join("nginx.conf"), config(folder.path(), address)).unwrap();
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
        let program = program.expect("nginx is missing: scripts/install-test-deps installs it");
        let child = Command::new(program)
            .arg("-p")
            .arg(folder.path())
            .args(["-e", "stderr", "-c", "nginx.conf"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("nginx", || async { tokio::net::TcpStream::connect(address).await.is_ok() }).await;
        Self { child, address, _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn config(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr;
         events {{ worker_connections 64; }}
         http {{
             access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
             uwsgi_temp_path {folder}; scgi_temp_path {folder};
             server {{
                 listen {address};
                 root {folder};
                 location = /echo {{ return 200 \"$request_method $http_host $http_x_forwarded_for $http_via\"; }}
                 location = /gone {{ return 410; }}
             }}
         }}"
    )
}

#[tokio::test]
async fn nginx_is_reached_as_if_nobody_stood_between() {
    let nginx = Nginx::start().await;
    let gateway = running(open(to(format!("http://{}", nginx.address).parse().unwrap()))).await;
    let mut client = gateway.client().await;
    let page = client.get("/page.txt", &[]).await;
    assert_eq!((page.status.as_u16(), page.body.len()), (200, 180_000));
    let etag = page.header("etag").unwrap().to_owned();
    let unchanged = client.get("/page.txt", &[("if-none-match", &etag)]).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.body.len()), (304, 0));
    let part = client.get("/page.txt", &[("range", "bytes=0-5")]).await;
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, b"a page".as_slice()));
    let head = client.ask("HEAD", "/page.txt", &[], "").await;
    assert_eq!((head.header("content-length"), head.body.len()), (Some("180000"), 0));
    let echo = client.ask("POST", "/echo", &[], "a body").await;
    assert_eq!(echo.body, "POST gateway.test 127.0.0.1 1.1 spile");
    assert_eq!(client.get("/gone", &[]).await.status, 410);
    assert_eq!(client.get("/missing", &[]).await.status, 404);
}
