use slidegate_testbed::redis::{Cluster, Server};
use tokio::time::{interval, timeout};

use super::scripts::FORMAT;
use super::*;
use crate::RedisStore;
use crate::store::redis::RedisConfig;

/// How long a test waits for a few beats, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn the_newer_format_is_written_when_everybody_reads_it_and_not_before() {
    // Nobody known; an old one among them; all new; a newer one still; the first format has none before it.
    let cases = [(2, 0, 1), (2, 1, 1), (2, 2, 2), (2, 3, 2), (3, 2, 2), (3, 1, 2), (1, 0, 1), (1, 1, 1)];
    for (own, lowest, expected) in cases {
        assert_eq!(writes(own, lowest), expected, "{own} among {lowest}");
    }
}

#[test]
fn the_oldest_member_counts_and_one_that_can_t_be_read_is_old() {
    let read = |members: &[&str]| {
        Instances::read(&members.iter().map(|member| member.as_bytes()).collect::<Vec<_>>(), b"00 2 a 1")
    };
    assert_eq!(read(&[]), Instances { count: 0, format: 0, rank: 0 });
    assert_eq!(read(&["00 2 a 1", "01 3 b 2"]), Instances { count: 2, format: 2, rank: 0 });
    assert_eq!(read(&["00 2 a 1", "of something else"]), Instances { count: 2, format: 1, rank: 0 });
    assert_eq!(read(&["00 2 a 1", "00 256 a 1"]), Instances { count: 2, format: 1, rank: 0 });
    let many = vec!["00 2 a 1"; 1000];
    assert_eq!(read(&many), Instances { count: 1000, format: 1, rank: 0 }, "there may be more");
}

#[test]
fn everybody_sees_the_instances_in_one_order() {
    let members: [&[u8]; 3] = [b"0b 1 a 1", b"0a 1 b 2", b"0c 1 a 3"];
    let ranks = members.map(|own| Instances::read(&members, own).rank);
    assert_eq!(ranks, [1, 0, 2]);
}

#[test]
fn the_highest_count_of_a_minute_is_remembered_and_no_longer() {
    let mut counts = Counts::default();
    let mut beat_s = 0;
    let mut beats = |count: u32, times: u64| {
        let told = (0..times).map(|_| {
            beat_s += 1;
            counts.add(beat_s * 1_000, count)
        });
        told.last()
    };
    assert_eq!(beats(3, 1), Some(3));
    assert_eq!(beats(8, 1), Some(8));
    assert_eq!(beats(7, 1), Some(8));
    assert_eq!(beats(2, 59), Some(8));
    assert_eq!(beats(2, 1), Some(7));
    assert_eq!(beats(1, 1), Some(2));
    // The store was away for an hour, and this instance is the first to be back.
    assert_eq!(counts.add(3_600_000, 1), 2);
    assert!(counts.heard.len() <= 3);
}

#[test]
fn a_host_s_name_is_one_word() {
    let host = host();
    assert!(!host.is_empty() && host.len() <= HOST_LEN_MAX);
    assert!(host.bytes().all(|byte| byte.is_ascii_graphic()), "{host:?}");
}

async fn store(url: &str) -> RedisStore {
    RedisStore::start(&RedisConfig::parse(url).unwrap().timeout(Millis(2_000))).unwrap()
}

async fn hears_of(store: &RedisStore, count: u32) {
    let mut looks = interval(Duration::from_millis(10));
    let heard = async {
        while store.figures().instances != count {
            looks.tick().await;
        }
    };
    assert!(timeout(PATIENCE, heard).await.is_ok(), "{count} of {:?}", store.figures());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_hear_of_each_other_and_of_who_leaves() {
    let server = Server::start();
    let first = store(&server.url()).await;
    hears_of(&first, 1).await;
    assert_eq!((first.figures().formats, first.figures().calls), (FORMAT, 0), "it is not traffic");
    let (second, third) = (store(&server.url()).await, store(&server.url()).await);
    for one in [&first, &second, &third] {
        hears_of(one, 3).await;
    }
    let members: Vec<String> = server.ask(&["ZRANGE", "sg:{instances}", "0", "-1"]);
    assert!(members.iter().all(|member| member.split(' ').count() == 4), "{members:?}");
    let ttl: i64 = server.ask(&["PTTL", "sg:{instances}"]);
    assert!((1..=10_000).contains(&ttl), "{ttl}");
    // At once, and not when its time is over.
    drop(second);
    hears_of(&first, 2).await;
    let left: i64 = server.ask(&["ZCARD", "sg:{instances}"]);
    assert_eq!(left, 2);
    drop(third);
    hears_of(&first, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_silent_for_five_seconds_is_gone_whatever_its_score() {
    let server = Server::start();
    let time: Vec<u64> = server.ask(&["TIME"]);
    let now_ms = time[0] * 1000 + time[1] / 1000;
    let add = |score: u64, member: &str| {
        server.ask::<i64>(&["ZADD", "sg:{instances}", &score.to_string(), member]);
    };
    add(now_ms - 6_000, "00 1 long-gone 1");
    add(now_ms + 3_600_000, "01 1 from-before-the-clock-was-put-back 1");
    add(now_ms + 1_000, "02 1 alive 1");
    let store = store(&server.url()).await;
    hears_of(&store, 2).await;
    hears_of(&store, 1).await;
}

/// Failed beats are no failure of the store; the next one that gets through is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beats_go_on_after_a_restart() {
    let server = Server::start();
    let store = store(&server.url()).await;
    hears_of(&store, 1).await;
    server.restart();
    let there = async {
        let mut looks = interval(Duration::from_millis(10));
        while server.ask::<i64>(&["ZCARD", "sg:{instances}"]) != 1 {
            looks.tick().await;
        }
    };
    assert!(timeout(PATIENCE, there).await.is_ok());
    assert_eq!(store.figures().faults.iter().sum::<u64>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_on_a_cluster_hear_of_each_other() {
    let cluster = Cluster::start();
    let url = format!("redis-cluster://{}", cluster.addresses());
    let (first, second) = (store(&url).await, store(&url).await);
    hears_of(&first, 2).await;
    hears_of(&second, 2).await;
    assert_eq!(second.figures().formats, FORMAT);
}
