//! Analytics as scripts ask for them: behind the operator's token.

use std::fs;

use http::Method;

use crate::support::{Client, Spile, TOKEN, until};

#[tokio::test(flavor = "multi_thread")]
async fn minutes_per_tenant_come_as_json_and_csv_to_whoever_knows_the_token() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    fs::write(folder.path().join("admin.token"), TOKEN).expect("there is room for a file");
    let spile = Spile::start_in(folder.path(), "[admin]\ntoken_file = \"admin.token\"\n").await.keep_busy();
    let (client, url) = (Client::new(), spile.admin_url("/admin/v1/analytics.csv?by=tenant"));
    assert_eq!(client.get(&url).await.expect("it answers").0, 401);
    let known = client.with_token(TOKEN);
    let csv = until("a denial of the tenant", async || {
        let (status, csv) = known.get(&url).await.ok()?;
        let denied = csv.lines().skip(1).any(|line| line.split(',').nth(4) != Some("0"));
        (status == 200 && denied).then_some(csv)
    })
    .await;
    assert!(csv.starts_with("minute,by,name,allowed,denied,shadow\n"), "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.contains(",tenant,acme,")), "{csv}");
    let json =
        known.send(Method::GET, &spile.admin_url("/admin/v1/analytics?name=login"), String::new()).await;
    assert!(json.expect("it answers").1.contains("\"by\":\"rule\",\"name\":\"login\""));
    for (wrong, words) in [
        ("from=soon", "from: invalid digit"),
        ("to=9007199254740992", "to: 9007199254740992 is not a second from 0 to 9007199254740991"),
        ("by=shoe-size", "by: unknown variant"),
        ("since=0", "unknown field `since`"),
    ] {
        for path in ["/admin/v1/analytics", "/admin/v1/analytics.csv", "/dashboard/minutes"] {
            let url = spile.admin_url(&format!("{path}?{wrong}"));
            let (status, problem) = known.get(&url).await.expect("it answers");
            assert_eq!(status, 400, "{url}: {problem}");
            assert!(problem.contains("\"field\":\"query\"") && problem.contains(words), "{url}: {problem}");
        }
    }
}
