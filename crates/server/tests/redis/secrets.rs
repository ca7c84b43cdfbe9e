//! Passwords, certificates and secret key parts: they work, and show nowhere.

use slidegate_testbed::instance::Instance;
use slidegate_testbed::redis::Server;

use crate::client::{get, send};
use crate::program;

const PASSWORD: &str = "hunter2-hunter2";

fn configuration(store: &str) -> String {
    format!(
        "store: {{ timeout: 5s, {store} }}\n\
         policies: [{{ name: p, limits: [3/1h], key: [\"{{secret:header:authorization}}\"] }}]\n\
         gateway: {{ listen: \"127.0.0.1:0\", routes: [{{ match: {{ prefix: / }}, policies: [p], upstream: echo }}] }}\n\
         admin: {{ listen: \"127.0.0.1:0\" }}\n"
    )
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn instances_with_one_key_hash_secrets_alike_and_none_can_be_read_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::options().password(PASSWORD).start();
    let hash = file(&folder, "hash.key", "0123456789abcdef0123456789abcdef\n");
    let password = file(&folder, "password", &format!("{PASSWORD}\n"));
    let in_url = format!("url: \"{}\", hash_key_file: {hash}", server.url());
    let apart =
        format!("url: \"redis://{}\", password_file: {password}, hash_key_file: {hash}", server.address());
    let instances = [in_url, apart].map(|store| Instance::start(&program(), &configuration(&store)));
    let token = "authorization: Bearer open-sesame-open-sesame";
    let statuses: Vec<u16> = (0..4)
        .map(|round| send(&instances[round % 2].address("gateway"), "GET", "/", &[token], "").status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let keys: Vec<String> = server.ask(&["KEYS", "*"]);
    assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("sg:")), "{keys:?}");
    assert!(!keys.concat().contains("open-sesame"), "{keys:?}");
    for instance in &instances {
        let metrics = get(&instance.address("admin"), "/metrics").body;
        for said in [instance.log(), metrics] {
            assert!(!said.contains(PASSWORD) && !said.contains("open-sesame"), "{said}");
        }
    }
}

#[test]
fn a_wrong_password_is_said_to_be_wrong_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::options().password(PASSWORD).start();
    let hash = file(&folder, "hash.key", "0123456789abcdef0123456789abcdef");
    let store = format!("url: \"redis://:wrong-wrong-wrong@{}\", hash_key_file: {hash}", server.address());
    let instance = Instance::start(&program(), &configuration(&store));
    assert_eq!(get(&instance.address("gateway"), "/").status, 503);
    let metrics = get(&instance.address("admin"), "/metrics").body;
    assert!(metrics.contains("slidegate_store_failures_total{fault=\"not_authenticated\"} 1\n"), "{metrics}");
    let log = instance.log();
    assert!(log.contains("user or password are wrong") && !log.contains("wrong-wrong"), "{log}");
}

#[test]
fn tls_shows_and_trusts_the_certificates_that_are_named() {
    let server = Server::options().tls().start();
    let folder = tempfile::tempdir().unwrap();
    let hash = file(&folder, "hash.key", "0123456789abcdef0123456789abcdef");
    let certificates = server.certificates();
    let store = format!(
        "url: \"{}\", hash_key_file: {hash}, tls: {{ ca: {}, cert: {}, key: {} }}",
        server.url(),
        certificates.authority().display(),
        certificates.client_certificate().display(),
        certificates.client_key().display()
    );
    let instance = Instance::start(&program(), &configuration(&store));
    assert_eq!(get(&instance.address("gateway"), "/").status, 200);
    let ready = get(&instance.address("admin"), "/readyz").json();
    assert_eq!(ready["store"], "ok");
}
