//! Eight processes under a crowd: what clients see of them, proved from outside.

use std::time::Duration;

use slidegate_testbed::crowd::{Answer, Crowd};
use slidegate_testbed::instance::Instance;
use slidegate_testbed::redis::Server;

const INSTANCES: usize = 8;
const PERMITS: u32 = 40;
const WINDOW: Duration = Duration::from_secs(1);

// Each has a memory of its own here, so each may admit all of the limit: this shows that the harness counts what
// it should, and that one process never admits more, whatever the phase of its arrivals.
#[test]
fn each_of_eight_processes_keeps_its_own_limit_at_twice_the_rate() {
    let program = assert_cmd::cargo::cargo_bin("slidegate");
    let configuration = format!(
        "policies: [{{ name: all, limits: [{PERMITS}/1s] }}]\n\
         gateway: {{ listen: \"127.0.0.1:0\", routes: [{{ match: {{ prefix: / }}, policies: [all], upstream: echo }}] }}\n"
    );
    let mut instances: Vec<Instance> =
        (0..INSTANCES).map(|_| Instance::start(&program, &configuration)).collect();
    let addresses: Vec<String> = instances.iter().map(|instance| instance.address("gateway")).collect();

    let seed = 20_261_130;
    println!("seed {seed}");
    let crowd = Crowd::offering(80 * 8, Duration::from_millis(2500)).connections(4).seed(seed);
    let outcome = crowd.run(&addresses);
    println!("{}", outcome.summary());
    assert_eq!(outcome.failed(), 0);
    for index in 0..INSTANCES {
        let own = outcome.of_instance(index);
        assert_eq!(own.records.len(), 200);
        assert!(own.largest_window(WINDOW) <= PERMITS, "instance {index}: {}", own.summary());
        assert!(own.count(Answer::Allowed) >= 40, "instance {index}: {}", own.summary());
    }
    assert!(outcome.largest_window(WINDOW) > PERMITS, "eight limits are more than one");

    for instance in &instances {
        instance.terminate();
    }
    for instance in &mut instances {
        assert_eq!(instance.wait().code(), Some(0), "{}", instance.log());
    }
}

// S1: eight instances, one limit, twice the load, in one Redis.
#[test]
fn eight_processes_that_share_a_store_never_pass_its_limit_together_and_use_all_of_it() {
    const SHARED: u32 = 400;
    let redis = Server::start();
    let program = assert_cmd::cargo::cargo_bin("slidegate");
    let configuration = format!(
        "store: {{ url: \"{}\", timeout: 500ms }}\n\
         policies: [{{ name: all, limits: [{SHARED}/1s] }}]\n\
         gateway: {{ listen: \"127.0.0.1:0\", routes: [{{ match: {{ prefix: / }}, policies: [all], upstream: echo }}] }}\n",
        redis.url()
    );
    let instances: Vec<Instance> =
        (0..INSTANCES).map(|_| Instance::start(&program, &configuration)).collect();
    let addresses: Vec<String> = instances.iter().map(|instance| instance.address("gateway")).collect();

    let seed = 20_261_130;
    println!("seed {seed}");
    let crowd =
        Crowd::offering(800, Duration::from_millis(3500)).connections(8).shares(&[5, 3, 1]).seed(seed);
    let outcome = crowd.run(&addresses);
    println!("{}", outcome.summary());
    assert_eq!(outcome.failed(), 0);
    assert!(outcome.largest_window(WINDOW) <= SHARED, "{}", outcome.summary());
    // Three whole windows and a half: what was admitted in each is what fits.
    let allowed = u32::try_from(outcome.count(Answer::Allowed)).unwrap();
    assert!((3 * SHARED..=4 * SHARED).contains(&allowed), "{}", outcome.summary());
}

#[test]
fn a_restarted_instance_says_its_new_address() {
    let program = assert_cmd::cargo::cargo_bin("slidegate");
    let configuration = "policies: [{ name: all, limits: [1/h] }]\napi: { listen: \"127.0.0.1:0\" }\n";
    let mut instance = Instance::start(&program, configuration);
    let (first, pid) = (instance.address("api"), instance.pid());
    instance.restart();
    assert_ne!(instance.pid(), pid);
    assert!(std::net::TcpStream::connect(instance.address("api")).is_ok());
    // The kernel may give the same port again, but the log has both.
    assert!(instance.log().matches(" http://").count() == 2 && !first.is_empty());
    instance.kill();
    assert!(std::net::TcpStream::connect(instance.address("api")).is_err());
}
