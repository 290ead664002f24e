//! `spile reload`: has a server read its file again.

use anyhow::bail;
use clap::Args;
use http::Method;

use super::admin::AdminArgs;
use super::entries::shown;

const NO_FILE: &str = "the server runs without a configuration file: no setting was changed, and only certificates and \
                       secrets that are in files of their own were read again";

/// Which server.
#[derive(Args, Debug)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

impl ReloadArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let client = self.admin.client();
        let (status, answer) = client.ask(Method::POST, "/admin/v1/config/reload", None)?;
        if let Some(errors) = answer["errors"].as_array() {
            let lines: Vec<String> = errors.iter().map(shown).collect();
            bail!(
                "the file is not valid, and the previous configuration stays in force:\n{}",
                lines.join("\n")
            );
        }
        if !status.is_success() {
            return client.refused(status, &answer);
        }
        if answer["result"] == "noFile" {
            return self.admin.print(&answer, || NO_FILE.to_owned());
        }
        self.admin.print(&answer, || match answer["needsRestart"].as_array().map(Vec::as_slice) {
            None | Some([]) => "the file is in force".to_owned(),
            Some(_) => {
                let waiting = shown(&answer["needsRestart"]);
                format!("the file is in force, except for what waits for a restart: {waiting}")
            }
        })
    }
}
