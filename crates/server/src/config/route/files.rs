//! The contents of files that routes name. They are read once for a configuration, however often its routes are checked.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use spile_gateway::{RefusalPage, Roots, UpstreamTls, UpstreamTlsError, UpstreamTlsFiles};

use super::spec::UpstreamTlsSpec;
use crate::config::source::{Faults, Location};

/// Files that routes name, and their contents.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteFiles {
    /// The folder that relative paths start from.
    folder: PathBuf,
    /// The TLS files for `https://` upstreams of routes that name no others.
    usual: UpstreamTlsFiles,
    loaded: HashMap<UpstreamTlsFiles, UpstreamTls>,
    pages: HashMap<PathBuf, Bytes>,
}

/// The TLS settings of a route for its `https://` upstreams.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTls {
    /// The route's own files.
    pub(super) own: UpstreamTlsFiles,
    /// The route's own files combined with those of all routes. `None` if there are neither.
    pub(crate) loaded: Option<UpstreamTls>,
}

impl RouteFiles {
    pub(in crate::config) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    /// The files of all routes, from `upstream_ca_file` and so on in the table at `at`.
    pub(in crate::config) fn check_usual(
        &mut self,
        spec: &UpstreamTlsSpec,
        at: &Location<'_>,
        faults: &mut Faults,
    ) -> UpstreamTlsFiles {
        let RouteTls { own, loaded } = self.check_tls(Some(spec), at, "upstream_", faults);
        if loaded.is_some() {
            self.usual = own.clone();
        }
        own
    }

    /// Checks a route's TLS files; those of all routes take the place of missing ones. Keys begin with `prefix`.
    pub(super) fn check_tls(
        &mut self,
        spec: Option<&UpstreamTlsSpec>,
        at: &Location<'_>,
        prefix: &str,
        faults: &mut Faults,
    ) -> RouteTls {
        let spec = spec.cloned().unwrap_or_default();
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| self.folder.join(path));
        let mut own = UpstreamTlsFiles::default();
        (own.ca_file, own.certificate_file) = (path(&spec.ca_file), path(&spec.certificate_file));
        (own.key_file, own.server_name) = (path(&spec.key_file), spec.server_name.clone());
        let mut whole = own.clone();
        whole.ca_file = whole.ca_file.or_else(|| self.usual.ca_file.clone());
        if whole.certificate_file.is_none() && whole.key_file.is_none() {
            whole.certificate_file.clone_from(&self.usual.certificate_file);
            whole.key_file.clone_from(&self.usual.key_file);
        }
        if whole == UpstreamTlsFiles::default() {
            return RouteTls::default();
        }
        let loaded = self.load(whole).map_err(|why| {
            let (key, fix) = to_blame(&own, &why);
            faults.add(&at.key(&format!("{prefix}{key}")), why, fix);
        });
        RouteTls { loaded: loaded.ok(), own }
    }

    /// The full path of a page, and its content. A file that is too large is read only as far as needed to notice.
    pub(super) fn read_page(&mut self, path: &Path) -> (PathBuf, io::Result<Bytes>) {
        let path = self.folder.join(path);
        if let Some(page) = self.pages.get(&path) {
            let page = page.clone();
            return (path, Ok(page));
        }
        let mut page = Vec::new();
        let enough = RefusalPage::MAX_BYTES as u64 + 1;
        let read = File::open(&path).and_then(|file| file.take(enough).read_to_end(&mut page));
        let page = read.map(|_| Bytes::from(page));
        if let Ok(page) = &page {
            self.pages.insert(path.clone(), page.clone());
        }
        (path, page)
    }

    fn load(&mut self, files: UpstreamTlsFiles) -> Result<UpstreamTls, UpstreamTlsError> {
        if let Some(loaded) = self.loaded.get(&files) {
            return Ok(loaded.clone());
        }
        let loaded = UpstreamTls::load(files.clone())?;
        self.loaded.insert(files, loaded.clone());
        Ok(loaded)
    }
}

/// The key that an error is about, and a fix.
fn to_blame(own: &UpstreamTlsFiles, why: &UpstreamTlsError) -> (&'static str, &'static str) {
    let bad_authorities = own.ca_file.as_ref().is_some_and(|path| Roots::from_file(path).is_err());
    match why {
        UpstreamTlsError::ServerName(_) => ("server_name", "the name in their certificate: `api.internal`"),
        UpstreamTlsError::File(_) if bad_authorities => ("ca_file", "the authorities' certificates, in PEM"),
        _ if own.certificate_file.is_some() => {
            ("certificate_file", "a chain in PEM, and the key that belongs to it")
        }
        _ => ("key_file", "a key in PEM, and the chain that belongs to it"),
    }
}
