//! A server, and one connection to it: what a script does with given bytes, and what the keys hold then.

use std::cell::RefCell;

use ::redis::{Connection, FromRedisValue, Pipeline, RedisResult, Value};
use slidegate_core::time::Millis;
use slidegate_testbed::redis::{Release, Server};

use crate::store::redis::link::Script;
use crate::store::redis::scripts::{CHECK, RESET, SETTLE};
use crate::store::redis::wire::Call;

/// How much longer keys live than they need to, in tests that make up their own time. Longer than any of them
/// takes, and shorter than the windows whose TTLs are to be told apart.
pub(super) const LINGER: Millis = Millis(600_000);

/// A server with the scripts, and a connection.
pub(super) struct Desk {
    server: Server,
    connection: RefCell<Connection>,
}

/// What a call came to.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) reply: Vec<u8>,
    /// What each key holds afterwards.
    pub(super) values: Vec<Option<Vec<u8>>>,
    /// How long each key lives, counted from the call, in ms: at least and at most. `None`: it is not there.
    /// Below zero: for ever.
    pub(super) ttls: Vec<Option<(i64, i64)>>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::of(Server::start())
    }

    pub(super) fn at(release: Release) -> Self {
        Self::of(Server::options().release(release).start())
    }

    pub(super) fn of(server: Server) -> Self {
        let desk = Self { connection: RefCell::new(connect(&server.url())), server };
        desk.load();
        desk
    }

    /// Makes the scripts known.
    pub(super) fn load(&self) {
        for script in [&CHECK, &SETTLE, &RESET] {
            let sha: String = self.ask(&[b"SCRIPT", b"LOAD", script.text.as_bytes()]).unwrap();
            assert_eq!(sha, script.sha);
        }
    }

    pub(super) const fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn ask<T: FromRedisValue>(&self, words: &[&[u8]]) -> RedisResult<T> {
        let mut command = ::redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut *self.connection.borrow_mut())
    }

    /// Runs a script; its refusals are the error.
    pub(super) fn run(&self, script: &Script, call: &Call) -> RedisResult<Vec<u8>> {
        let args = call.args();
        let keys: Vec<&[u8]> = call.keys.iter().map(|key| &**key).collect();
        self.run_raw(script, &keys, &args)
    }

    /// Runs a script with whatever bytes.
    pub(super) fn run_raw(&self, script: &Script, keys: &[&[u8]], args: &[&[u8]]) -> RedisResult<Vec<u8>> {
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVALSHA", script.sha.as_bytes(), count.as_bytes()];
        words.extend(keys);
        words.extend(args);
        match self.ask::<Value>(&words)? {
            Value::BulkString(bytes) => Ok(bytes),
            other => panic!("no bytes: {other:?}"),
        }
    }

    /// Runs a script, and looks at keys in the same round trip.
    pub(super) fn step(&self, script: &Script, call: &Call, keys: &[Vec<u8>]) -> RedisResult<Done> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME").cmd("EVALSHA").arg(&script.sha).arg(call.keys.len());
        for key in &call.keys {
            pipeline.arg(&**key);
        }
        for arg in call.args() {
            pipeline.arg(arg);
        }
        for key in keys {
            pipeline.cmd("GETRANGE").arg(key).arg(0).arg(-1).cmd("PEXPIRETIME").arg(key);
        }
        pipeline.cmd("TIME");
        let mut answers: Vec<Value> = pipeline.query(&mut *self.connection.borrow_mut())?;
        let after = millis(answers.pop().unwrap());
        let mut answers = answers.into_iter();
        let before = millis(answers.next().unwrap());
        let Value::BulkString(reply) = answers.next().unwrap() else { panic!("no bytes") };
        let mut done = Done { reply, values: Vec::new(), ttls: Vec::new() };
        while let (Some(Value::BulkString(value)), Some(Value::Int(expires))) =
            (answers.next(), answers.next())
        {
            let there = expires != -2;
            assert_eq!(there, !value.is_empty());
            done.values.push(there.then_some(value));
            done.ttls.push(there.then_some((expires - after, expires - before)));
        }
        assert_eq!(done.values.len(), keys.len());
        Ok(done)
    }

    pub(super) fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.ask(&[b"GET", key]).unwrap()
    }

    /// Milliseconds; -1: it has none, -2: there is no such key.
    pub(super) fn pttl(&self, key: &[u8]) -> i64 {
        self.ask(&[b"PTTL", key]).unwrap()
    }

    pub(super) fn size(&self) -> i64 {
        self.ask(&[b"DBSIZE"]).unwrap()
    }

    /// Writes a value that lives long enough for a test.
    pub(super) fn put(&self, key: &[u8], value: &[u8]) {
        let ttl = LINGER.get().to_string();
        self.ask::<()>(&[b"SET", key, value, b"PX", ttl.as_bytes()]).unwrap();
    }

    pub(super) fn clear(&self) {
        self.ask::<()>(&[b"FLUSHALL"]).unwrap();
    }
}

pub(super) fn connect(url: &str) -> Connection {
    ::redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn millis(time: Value) -> i64 {
    let (seconds, micros) = <(i64, i64)>::from_redis_value(time).unwrap();
    seconds * 1000 + micros / 1000
}
