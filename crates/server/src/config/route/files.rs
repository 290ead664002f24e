//! What is in the files that routes name: read once for a configuration, however often its routes are checked.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use spile_gateway::{RefusalPage, Roots, UpstreamTls, UpstreamTlsError, UpstreamTlsFiles};

use crate::config::file::{Faults, Place, Spot, UpstreamTlsFile};

/// Files that routes name, and what was in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteFiles {
    /// What relative paths start from.
    folder: PathBuf,
    /// How routes meet `https://` upstreams that say nothing else.
    usual: UpstreamTlsFiles,
    loaded: HashMap<UpstreamTlsFiles, UpstreamTls>,
    pages: HashMap<PathBuf, Bytes>,
}

/// How a route meets its `https://` upstreams.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTls {
    /// What the route itself says.
    pub(super) own: UpstreamTlsFiles,
    /// Together with what holds for all routes. `None` if there is neither.
    pub(crate) loaded: Option<UpstreamTls>,
}

impl RouteFiles {
    pub(in crate::config) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    /// What holds for all routes, unless there is something wrong with it.
    pub(in crate::config) fn check_usual(
        &mut self,
        file: &UpstreamTlsFile,
        faults: &mut Faults,
    ) -> UpstreamTlsFiles {
        let RouteTls { own, loaded } = self.check_tls(file, faults);
        if loaded.is_some() {
            self.usual = own.clone();
        }
        own
    }

    /// How a route meets its upstreams: what it says itself, and the rest as for all.
    pub(super) fn check_tls(&mut self, file: &UpstreamTlsFile, faults: &mut Faults) -> RouteTls {
        let path = |text: &Option<Spot<String>>| text.as_ref().map(|text| self.folder.join(&text.value));
        let mut own = UpstreamTlsFiles::default();
        (own.ca_file, own.certificate_file) = (path(&file.ca_file), path(&file.certificate_file));
        (own.key_file, own.server_name) =
            (path(&file.key_file), file.server_name.as_ref().map(|name| name.value.clone()));
        let mut whole = own.clone();
        whole.ca_file = whole.ca_file.or_else(|| self.usual.ca_file.clone());
        if whole.certificate_file.is_none() && whole.key_file.is_none() {
            whole.certificate_file.clone_from(&self.usual.certificate_file);
            whole.key_file.clone_from(&self.usual.key_file);
        }
        if whole == UpstreamTlsFiles::default() {
            return RouteTls::default();
        }
        let loaded = self.load(whole).map_err(|why| tell(file, &own, why, faults)).ok();
        RouteTls { own, loaded }
    }

    /// The whole path of a page, and what is in it. Of a file that is too large, just enough to tell.
    pub(super) fn read_page(&mut self, path: &str) -> (PathBuf, io::Result<Bytes>) {
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

/// Says what is wrong where it was written.
fn tell(file: &UpstreamTlsFile, own: &UpstreamTlsFiles, why: UpstreamTlsError, faults: &mut Faults) {
    let UpstreamTlsFile { ca_file, certificate_file, key_file, server_name } = file;
    let bad_authorities = own.ca_file.as_ref().is_some_and(|path| Roots::from_file(path).is_err());
    let (spot, fix) = match &why {
        UpstreamTlsError::ServerName(_) => (server_name, "the name in their certificate: `api.internal`"),
        UpstreamTlsError::File(_) if bad_authorities => (ca_file, "the authorities' certificates, in PEM"),
        _ if certificate_file.is_some() => {
            (certificate_file, "a chain in PEM, and the key that belongs to it")
        }
        _ => (key_file, "a key in PEM, and the chain that belongs to it"),
    };
    let nowhere = Place::File(0..0);
    faults.add(spot.as_ref().map_or(&nowhere, |spot| &spot.place), why, fix);
}
