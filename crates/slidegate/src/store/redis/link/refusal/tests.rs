use super::*;

/// A refusal as the parser makes it from `-CODE detail`.
fn refusal(line: &str) -> Refusal {
    let reply = ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error reply");
    match reply {
        ::redis::Value::ServerError(error) => of_server(&error),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn every_class_has_one_outcome() {
    let sha = "c664a3bf70bd1d45c4284ffebb65a6f2299bfc9f";
    let in_7 = |line: &str| format!("{line} script: {sha}, on @user_script:1.");
    let in_62 = |line: &str| format!("ERR Error running script (call to f_{sha}): @user_script:1: {line}");
    let rows = [
        ("READONLY You can't write against a read only replica.".to_owned(), "unavailable read_only leave"),
        (in_7("READONLY You can't write against a read only replica."), "unavailable read_only leave"),
        (in_62("-READONLY You can't write against a read only replica."), "unavailable read_only leave"),
        ("LOADING Redis is loading the dataset in memory".to_owned(), "unavailable loading leave"),
        ("MASTERDOWN Link with MASTER is down".to_owned(), "unavailable master_down leave"),
        ("NOAUTH Authentication required.".to_owned(), "unavailable not_authenticated leave"),
        ("WRONGPASS invalid username-password pair".to_owned(), "unavailable not_authenticated leave"),
        ("CLUSTERDOWN The cluster is down".to_owned(), "unavailable cluster_down"),
        (in_7("OOM command not allowed when used memory > 'maxmemory'."), "unavailable out_of_memory"),
        (in_62("-OOM command not allowed when used memory > 'maxmemory'."), "unavailable out_of_memory"),
        ("MISCONF Redis is configured to save RDB snapshots".to_owned(), "unavailable writes_refused"),
        ("NOREPLICAS Not enough good replicas to write.".to_owned(), "unavailable writes_refused"),
        ("BUSY Redis is busy running a script.".to_owned(), "unavailable busy"),
        (
            "NOPERM this user has no permissions to run the 'evalsha' command".to_owned(),
            "unavailable no_permission",
        ),
        (in_7("ERR The user executing the script can't run this command"), "lost no_permission"),
        (in_62("-NOPERM The user executing the script can't run this command"), "lost no_permission"),
        ("WRONGTYPE Operation against a key holding the wrong kind".to_owned(), "unavailable foreign_key"),
        (in_7("WRONGTYPE Operation against a key holding the wrong kind"), "lost foreign_key"),
        (in_62("WRONGTYPE Operation against a key holding the wrong kind"), "lost foreign_key"),
        ("ERR max number of clients reached".to_owned(), "unavailable disconnected leave"),
        ("ERR unknown command 'EVALSHA'".to_owned(), "unavailable protocol"),
        (in_7("ERR user_script:1: attempt to index a nil value"), "lost protocol"),
        ("SOMETHING new".to_owned(), "lost protocol"),
    ];
    for (line, expected) in rows {
        let Refusal::Final { error, leave } = refusal(&line) else {
            panic!("{line} is followed elsewhere");
        };
        let kind = if matches!(error, StoreError::Lost { .. }) { "lost" } else { "unavailable" };
        let fault = error.fault().map_or("", Fault::name);
        let leave = if leave { " leave" } else { "" };
        assert_eq!(format!("{kind} {fault}{leave}"), expected, "{line}");
    }
}

#[test]
fn redirections_name_a_slot_and_a_node() {
    let Refusal::Moved(slot, node) = refusal("MOVED 3999 127.0.0.1:6381") else { panic!("moved") };
    assert_eq!((slot, node.as_str()), (3999, "127.0.0.1:6381"));
    let Refusal::Ask(node) = refusal("ASK 3999 ::1:6381") else { panic!("ask") };
    assert_eq!(node, "::1:6381");
    assert!(matches!(refusal("CLUSTERDOWN Hash slot not served"), Refusal::TryAgain));
    assert!(matches!(refusal("TRYAGAIN Multiple keys request during rehashing of slot"), Refusal::TryAgain));
    assert!(matches!(refusal("NOSCRIPT No matching script. Please use EVAL."), Refusal::NoScript));
    assert!(matches!(refusal("MOVED"), Refusal::Final { .. }));
}

#[test]
fn a_script_that_runs_another_unknown_one_is_not_sent_again() {
    // It has begun: a second time, it could charge twice.
    let refused = refusal("NOSCRIPT No matching script. script: 0a, on @user_script:1.");
    assert!(matches!(refused, Refusal::Final { error: StoreError::Lost { .. }, .. }));
}
