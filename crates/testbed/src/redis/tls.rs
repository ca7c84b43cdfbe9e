//! Certificates that exist as long as one test: an authority of its own, a server and a client that it vouches
//! for. Valid from long ago to far ahead, so no test fails for what the clock says.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Paths of PEM files, in the directory of the server that shows them.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes all of them in `folder`.
    ///
    /// # Panics
    ///
    /// When the files can't be written.
    #[must_use]
    pub fn create(folder: &Path) -> Self {
        let made = Self { folder: folder.to_owned() };
        made.write().expect("certificates in a directory of our own");
        made
    }

    /// Whom clients have to trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// Of the server, for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn server_certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// Of the server.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// What a client shows.
    #[must_use]
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// Of the client.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    fn write(&self) -> Result<(), Box<dyn std::error::Error>> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "slidegate test authority");
        let authority_key = KeyPair::generate()?;
        std::fs::write(self.authority(), authority.self_signed(&authority_key)?.pem())?;
        let issuer = Issuer::new(authority, authority_key);

        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut server = CertificateParams::new(names)?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        std::fs::write(self.server_certificate(), server.signed_by(&key, &issuer)?.pem())?;
        std::fs::write(self.server_key(), key.serialize_pem())?;

        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, "slidegate test client");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        std::fs::write(self.client_certificate(), client.signed_by(&key, &issuer)?.pem())?;
        std::fs::write(self.client_key(), key.serialize_pem())?;
        Ok(())
    }
}
