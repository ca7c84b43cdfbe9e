//! The network: every message takes its time, and some are lost, late or doubled. And what a server does with one.
//!
//! A message is for one life of a server, as a connection is; an answer is for one life of an instance. What an
//! instance and the store send while they are cut off is lost, or arrives when they hear each other again.

use slidegate_core::algorithm::Receipt;
use slidegate_core::instance::grants::PutBack;
use slidegate_core::ledger;
use slidegate_core::limit::Limit;
use slidegate_core::time::{Millis, Now};

use super::{Beaten, Event, World};
use crate::broken::Broken;
use crate::decide::{self, Ask, Told};
use crate::instance::Connection;
use crate::totals;

/// Whoever has not beaten for so long is gone. As in `heartbeat.rs`.
pub(crate) const LIFE: Millis = Millis(5_000);

/// What an instance sends.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Check {
        key: usize,
        ask: Ask,
    },
    /// Nothing but to put back, beside the checks.
    PutBack {
        key: usize,
        limit: Limit,
        call: ledger::Call,
        back: PutBack,
    },
    Refund {
        key: usize,
        limit: Limit,
        receipt: Receipt,
    },
    Beat {
        in_sync: Option<u64>,
    },
    Probe,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) who: usize,
    pub(crate) life: u32,
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    pub(crate) sent_us: u64,
    pub(crate) body: Body,
}

/// What a server says.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Check {
        key: usize,
        told: Told,
    },
    /// The last call that the key knows of; `None`: it was told.
    PutBack {
        key: usize,
        known: Option<u64>,
    },
    Beat {
        now_ms: u64,
        beats: Vec<(u64, Beaten)>,
    },
    Pong,
    /// It is no master, or no longer there.
    Refused,
}

/// An answer on its way.
#[derive(Clone, Debug)]
pub(crate) struct Receipted {
    pub(crate) who: usize,
    pub(crate) life: u32,
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    pub(crate) sent_us: u64,
    /// When the server executed it.
    pub(crate) executed_us: u64,
    /// By an old master that does not know it yet.
    pub(crate) beside: bool,
    pub(crate) reply: Reply,
}

impl World {
    /// Sends what an instance has to say over its connection; it must have one. Returns the number of the message.
    pub(crate) fn send(&mut self, who: usize, connection: Connection, body: Body) -> u64 {
        self.calls += 1;
        let (life, number, sent_us) = (self.instances[who].life, self.calls, self.now_us);
        let message = Message { who, life, number, connection, sent_us, body };
        // A refund is never sent twice, since it would give back twice: the product repeats none.
        let once = matches!(message.body, Body::Refund { .. });
        let copies = 1 + u32::from(!once && self.of_thousand(self.scene.doubled));
        for copy in 0..copies {
            if self.of_thousand(self.scene.lost) {
                self.tell(|_| format!("call {number} of {who} is lost"));
                continue;
            }
            let mut arrives_us = self.now_us + self.way_us();
            if copy > 0 || self.of_thousand(self.scene.late) {
                arrives_us += self.rng.u64(1_000..1_000_000);
                self.tell(|_| format!("call {number} of {who} arrives late: at {arrives_us}"));
            }
            if self.is_cut(who) {
                if self.rng.bool() {
                    continue;
                }
                arrives_us = arrives_us.max(self.cut_until_us[who] + self.way_us());
            }
            self.queue.push(arrives_us, Event::Execute(message.clone()));
        }
        number
    }

    pub(crate) fn is_cut(&self, who: usize) -> bool {
        self.cut_until_us[who] > self.now_us
    }

    pub(crate) fn way_us(&mut self) -> u64 {
        let (from, to) = self.scene.way_us;
        self.rng.u64(from..=to)
    }

    /// A message comes to a server.
    pub(super) fn execute(&mut self, message: Message) {
        let Message { who, life, number, connection, sent_us, .. } = message;
        let server = connection.server;
        if self.is_cut(who) {
            return;
        }
        let alive = self.store.servers[server].alive;
        if self.lives[server] != connection.life || !alive {
            // The machine says that there is no such connection; or there is no machine.
            if alive || number % 2 == 0 {
                let answer = self.answer_to(who, life, number, connection, sent_us, Reply::Refused);
                self.reply(answer);
            }
            return;
        }
        let reply = match message.body {
            Body::Probe => Some(Reply::Pong),
            _ if !self.store.servers[server].writable => Some(Reply::Refused),
            Body::Check { key, ask } => Some(self.execute_check(server, who, key, number, &ask)),
            Body::PutBack { key, limit, call, back } => {
                let known = self.on_value(server, key, &limit, |image, now| {
                    decide::put_back(image, now, &limit, &call, &back)
                });
                self.tell(|_| format!("server {server}: {who} puts back to key {key} {back:?} => {known:?}"));
                Some(Reply::PutBack { key, known })
            }
            Body::Refund { key, limit, receipt } => {
                let given = self
                    .on_value(server, key, &limit, |image, now| decide::settle(image, now, &limit, &receipt));
                self.tell(|_| format!("server {server}: {who} gives {given} of key {key} back"));
                None
            }
            Body::Beat { in_sync } => Some(self.execute_beat(server, who, in_sync)),
        };
        if let Some(reply) = reply {
            let answer = self.answer_to(who, life, number, connection, sent_us, reply);
            self.reply(answer);
        }
    }

    fn execute_check(&mut self, server: usize, who: usize, key: usize, number: u64, ask: &Ask) -> Reply {
        let broken = self.broken;
        self.figures.calls += 1;
        self.watches[key].executed(&ask.limit, self.now_us);
        let told = self.on_value(server, key, &ask.limit, |image, now| match broken {
            Broken::Totals => totals::check(image, now, ask),
            _ => decide::check(image, now, ask, broken),
        });
        self.tell(|world| {
            let image = world.store.servers[server].value(key);
            let used = image.map_or(0, slidegate_core::algorithm::tick_log::layout::Image::used);
            let clock = world.store.clock(server, world.now_us).as_micros();
            format!("server {server} at {clock}: call {number} of {who} on key {key}: {ask} => {told}, used {used}")
        });
        Reply::Check { key, told }
    }

    fn execute_beat(&mut self, server: usize, who: usize, in_sync: Option<u64>) -> Reply {
        let now_ms = self.store.clock(server, self.now_us).floor_ms();
        self.beats.retain(|_, beat| beat.at_ms + LIFE.get() > now_ms && beat.at_ms <= now_ms + LIFE.get());
        let identity = self.instances[who].identity;
        self.beats.insert(identity, Beaten { at_ms: now_ms, in_sync });
        Reply::Beat { now_ms, beats: self.beats.iter().map(|(who, beat)| (*who, beat.clone())).collect() }
    }

    /// Runs a script on a value.
    pub(super) fn on_value<T>(
        &mut self,
        server: usize,
        key: usize,
        limit: &Limit,
        script: impl FnOnce(&mut slidegate_core::algorithm::tick_log::layout::Image, Now) -> T,
    ) -> T {
        let (rng, lag_us) = (&mut self.rng, self.scene.lag_us);
        let floored = self.broken == Broken::FlooredTwice;
        self.store.execute(
            server,
            key,
            limit,
            self.now_us,
            |_| rng.u64(lag_us.0..=lag_us.1),
            |image, now| script(image, if floored { Now::from_millis(now.floor_ms()) } else { now }),
        )
    }

    fn answer_to(
        &self,
        who: usize,
        life: u32,
        number: u64,
        connection: Connection,
        sent_us: u64,
        reply: Reply,
    ) -> Receipted {
        let beside = self.store.master != Some(connection.server);
        Receipted { who, life, number, connection, sent_us, executed_us: self.now_us, beside, reply }
    }

    fn reply(&mut self, answer: Receipted) {
        if self.of_thousand(self.scene.lost) {
            self.tell(|_| format!("the answer to call {} is lost", answer.number));
            return;
        }
        let mut arrives_us = self.now_us + self.way_us();
        if self.of_thousand(self.scene.late) {
            arrives_us += self.rng.u64(1_000..1_000_000);
        }
        self.queue.push(arrives_us, Event::Answer(answer));
    }

    /// An answer comes to an instance.
    pub(super) fn answer(&mut self, answer: Receipted) {
        let who = answer.who;
        if !self.lives_on(who, answer.life) || self.is_cut(who) {
            return;
        }
        match answer.reply {
            Reply::Refused => self.disconnected(who, answer.connection),
            Reply::Pong => self.probe_answered(who, &answer),
            Reply::Beat { now_ms, ref beats } => self.beat_answered(who, now_ms, beats),
            Reply::PutBack { key, known } => self.compared(who, key, answer.number, known),
            Reply::Check { key, .. } => self.answered(key, answer),
        }
    }
}
