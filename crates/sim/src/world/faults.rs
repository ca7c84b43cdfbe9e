//! What goes wrong, what of it is repaired, and what the oracle is told to except for it.

use slidegate_core::limit::Limit;

use super::World;
use crate::decide;
use crate::oracle::{Allowance, Rule};
use crate::scene::Fault;
use crate::store::ServerId;

/// A fault, or a later part of one.
#[derive(Debug)]
pub(crate) enum Happening {
    Begins(Fault),
    /// Sentinels, or whoever it is, choose a replica.
    Promotes {
        old: ServerId,
        demote: bool,
    },
    /// A server that was killed follows the master.
    ComesBack {
        server: ServerId,
    },
    ComesBackEmpty {
        server: ServerId,
    },
    /// An instance hears that the master is another one.
    IsTold {
        who: usize,
        old: ServerId,
    },
    /// An old master hears it.
    IsDemoted {
        old: ServerId,
    },
    Limit {
        who: usize,
        key: usize,
    },
    Starts {
        who: usize,
    },
}

impl World {
    pub(super) fn fault(&mut self, happening: Happening) {
        self.tell(|_| format!("{happening:?}"));
        match happening {
            Happening::Begins(fault) => self.begin(fault),
            Happening::Promotes { old, demote } => self.promote(old, demote),
            Happening::ComesBack { server } => self.come_back(server),
            Happening::ComesBackEmpty { server } => {
                self.forget_beats();
                self.unsettled_us = Some(self.now_us);
                self.ahead_us = self.store.servers[server].ahead_us;
                self.store.come_back_empty(server, self.now_us);
            }
            Happening::IsTold { who, old } => {
                if let Some(connection) = self.instances[who].connection
                    && connection.server == old
                    && self.store.master != Some(old)
                {
                    self.disconnected(who, connection);
                }
            }
            Happening::IsDemoted { old } => {
                if let Some(master) = self.store.master.filter(|master| *master != old) {
                    self.store.follow(old, master, self.now_us);
                }
            }
            // The newest, should there be two changes at once.
            Happening::Limit { who, key } => self.instances[who].sides[key].limit = self.scene.limits[key],
            Happening::Starts { who } => {
                let fresh = self.fresh_instance(self.instances[who].life + 1);
                self.instances[who] = fresh;
                for key in 0..self.scene.limits.len() {
                    self.instances[who].sides[key].limit = self.scene.limits[key];
                }
                self.start_up(who);
            }
        }
    }

    fn begin(&mut self, fault: Fault) {
        let now_us = self.now_us;
        match fault {
            Fault::Kill { promoted_after_us } => {
                if let Some(old) = self.kill_master() {
                    self.later(promoted_after_us, Happening::Promotes { old, demote: true });
                    let back_us = promoted_after_us + self.rng.u64(1_000..1_000_000);
                    self.later(back_us, Happening::ComesBack { server: old });
                }
            }
            Fault::Restart { after_us } => {
                if let Some(server) = self.kill_master() {
                    self.later(after_us, Happening::ComesBackEmpty { server });
                }
            }
            Fault::Planned { takes_us } => self.hand_over(takes_us),
            Fault::SplitBrain { overlap_us } => {
                // One at a time: the bound is of one.
                let split = self.store.servers.iter().filter(|server| server.writable).count() > 1;
                if let Some(old) = self.store.master.filter(|_| !split) {
                    self.promote(old, false);
                    self.later(overlap_us, Happening::IsDemoted { old });
                    for who in 0..self.scene.instances {
                        let told_us = self.rng.u64(0..=overlap_us);
                        self.later(told_us, Happening::IsTold { who, old });
                    }
                }
            }
            Fault::Step { server, by_us } => self.step_clock(server, by_us),
            Fault::CutOff { who, for_us } => self.cut_until_us[who] = now_us + for_us,
            Fault::Silence { for_us } => self.cut_until_us.fill(now_us + for_us),
            Fault::HoldReplication { for_us } => {
                for server in &mut self.store.servers {
                    server.held_until_us = now_us + for_us;
                }
            }
            Fault::Reset { key } => self.reset(key),
            Fault::Limit { key, limit, within_us } => self.change_limit(key, limit, within_us),
            Fault::Die { who, started_after_us } => {
                self.end_instance(who);
                self.later(started_after_us, Happening::Starts { who });
            }
            Fault::Stop { who, started_after_us } => {
                for key in 0..self.scene.limits.len() {
                    self.give_rest_back(who, key);
                }
                self.beats.remove(&self.instances[who].identity);
                self.end_instance(who);
                self.later(started_after_us, Happening::Starts { who });
            }
        }
    }

    fn later(&mut self, pause_us: u64, happening: Happening) {
        self.queue.push(self.now_us + pause_us, super::Event::Fault(happening));
    }

    fn kill_master(&mut self) -> Option<ServerId> {
        let old = self.store.master?;
        self.store.kill(old);
        self.lives[old] += 1;
        // Whoever is connected hears of it at once, if there is a machine left to say so.
        if self.rng.bool() {
            for who in 0..self.scene.instances {
                let told_us = self.way_us();
                self.later(told_us, Happening::IsTold { who, old });
            }
        }
        Some(old)
    }

    /// A replica takes over with what it has.
    fn promote(&mut self, old: ServerId, demote: bool) {
        // Somebody else may have come first.
        if self.store.master.is_some_and(|master| master != old) {
            return;
        }
        let able: Vec<ServerId> = (0..self.scene.servers)
            .filter(|server| {
                (*server != old || !self.store.servers[old].writable) && self.store.servers[*server].alive
            })
            .collect();
        let Some(place) = self.rng.choice(able.iter().copied()) else {
            // Nobody is left: the first that comes back, with what it had when it was killed.
            self.later(20_000, Happening::Promotes { old, demote });
            return;
        };
        if self.store.master == Some(place) {
            // There was nobody to hand over to.
            self.store.servers[place].writable = true;
            return;
        }
        let after = self.store.servers[place].ahead_us;
        let before = std::mem::replace(&mut self.ahead_us, after);
        let lost = self.store.promote(place, self.now_us, demote);
        self.unsettled_us = Some(self.now_us);
        self.figures.writes_lost += u64::try_from(lost).unwrap_or_default();
        self.tell(|_| format!("server {place} is the master, and lacks {lost} writes"));
        if after > before {
            self.allow_whole(Rule::ClockForward);
        }
    }

    /// The master stops writes until a replica has all of them. Connections to it are told.
    fn hand_over(&mut self, takes_us: u64) {
        let Some(old) = self.store.master.filter(|old| self.store.servers[*old].writable) else { return };
        self.store.servers[old].writable = false;
        self.store.flush(self.now_us);
        self.later(takes_us, Happening::Promotes { old, demote: true });
        for who in 0..self.scene.instances {
            let told_us = takes_us + self.way_us();
            self.later(told_us, Happening::IsTold { who, old });
        }
    }

    fn come_back(&mut self, server: ServerId) {
        if self.store.servers[server].alive {
            return;
        }
        self.store.servers[server].alive = true;
        if let Some(master) = self.store.master {
            self.store.follow(server, master, self.now_us);
        }
    }

    fn step_clock(&mut self, server: ServerId, by_us: i64) {
        self.store.servers[server].ahead_us += by_us;
        if self.store.master == Some(server) {
            self.ahead_us += by_us;
        }
        if by_us > 0 && self.store.servers[server].writable {
            self.allow_whole(Rule::ClockForward);
        }
    }

    /// As much as the limit more on every key, once.
    fn allow_whole(&mut self, rule: Rule) {
        let (from_us, to_us) = (self.now_us, self.now_us + self.scene.lease.get() * 1000);
        for watch in &mut self.watches {
            let units = watch.permits_in_use(from_us);
            watch.allow(Allowance { rule, from_us, to_us, units });
        }
    }

    fn reset(&mut self, key: usize) {
        let Some(master) = self.store.master else { return };
        let limit = self.scene.limits[key];
        self.on_value(master, key, &limit, |image, now| decide::reset(image, now, &limit));
        let units = self.watches[key].permits_in_use(self.now_us);
        let (from_us, to_us) = (self.now_us, self.now_us + self.scene.lease.get() * 1000);
        self.watches[key].allow(Allowance { rule: Rule::Reset, from_us, to_us, units });
    }

    fn change_limit(&mut self, key: usize, limit: Limit, within_us: u64) {
        self.scene.limits[key] = limit;
        for who in 0..self.scene.instances {
            let pause_us = self.rng.u64(0..=within_us);
            self.later(pause_us, Happening::Limit { who, key });
        }
        self.watches[key].change_limit(limit, self.now_us, self.now_us + within_us);
    }

    /// What it was granted can't be put back any more.
    fn end_instance(&mut self, who: usize) {
        if !self.instances[who].alive {
            return;
        }
        self.leave_local(who);
        self.end_roll_call(who);
        self.instances[who].alive = false;
        for key in 0..self.scene.limits.len() {
            let window_us = self.instances[who].sides[key].limit.window().get() * 1000;
            let units = self.watches[key].spent_by(who, self.now_us.saturating_sub(window_us));
            let (from_us, to_us) = (self.now_us, self.now_us + window_us);
            self.watches[key].allow(Allowance { rule: Rule::DiedWithGrants, from_us, to_us, units });
        }
    }

    fn forget_beats(&mut self) {
        self.beats.clear();
    }
}
