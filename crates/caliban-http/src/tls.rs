//! TLS: built on the first `https` request, never before, since reading the certificates takes
//! milliseconds that most commands do not need.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

use crate::{HttpError, connect::Stream};

#[derive(Debug, Default)]
pub(crate) struct Tls {
    extra_roots_pem: Option<Vec<u8>>,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Tls {
    pub(crate) fn new(extra_roots_pem: Option<Vec<u8>>) -> Self {
        Self { extra_roots_pem, config: OnceCell::new() }
    }

    /// Speaks TLS over a stream, as a client of `host`.
    pub(crate) async fn wrap(&self, host: &str, stream: Stream) -> Result<Stream, HttpError> {
        let failed = |reason: String| HttpError::Tls { host: host.to_owned(), reason };
        let config = self.config.get_or_try_init(|| self.build()).await.map_err(failed)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(config));
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    async fn build(&self) -> Result<Arc<ClientConfig>, String> {
        let extra = self.extra_roots_pem.clone();
        let built = tokio::task::spawn_blocking(move || config(extra.as_deref())).await;
        built.map_err(|error| error.to_string())?
    }
}

fn config(extra_roots_pem: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    // A system store with a few unreadable certificates is still a store.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(pem) = extra_roots_pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("the extra certificates: {error:?}"))?;
            roots.add(certificate).map_err(|error| format!("the extra certificates: {error}"))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
