//! What a server's refusal, or its silence, means for the call that met it. The table is in the module above;
//! this is the code that it is the table of. Pure: no IO.
//!
//! A refusal from within a script may come after other counters of the same call were written. Only where the
//! server itself rules that out (it refuses a script's *first* write for READONLY, OOM, MISCONF and NOREPLICAS) is
//! it "not executed".

use ::redis::{ErrorKind, RedisError, ServerError};

use crate::error::{Fault, StoreError};

/// What to do about a call that got no proper reply.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// The slot lives elsewhere, for good: slot and `host:port`.
    Moved(u16, String),
    /// The key may live elsewhere, for this one call: `host:port`.
    Ask(String),
    /// The slot is just being moved, and its keys are at both ends.
    TryAgain,
    /// The server does not know the script.
    NoScript,
    /// This is the end of the call.
    Final {
        /// What the caller is told.
        error: StoreError,
        /// Whether the connection is of no more use: another has to be opened, perhaps to another server.
        leave: bool,
    },
}

impl Refusal {
    /// Nothing was executed.
    pub(super) const fn unavailable(fault: Fault) -> Self {
        Self::Final { error: StoreError::Unavailable { fault }, leave: false }
    }

    /// It may have been executed.
    pub(super) const fn lost(fault: Fault, leave: bool) -> Self {
        Self::Final { error: StoreError::Lost { fault }, leave }
    }
}

/// Where a refusal came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Server,
    Script,
}

/// A refusal that the server sent.
pub(super) fn of_server(error: &ServerError) -> Refusal {
    let detail = error.details().unwrap_or_default();
    let (code, origin) = code_and_origin(error.code(), detail);
    match code {
        "MOVED" => redirected(detail).map_or(PROTOCOL, |(slot, node)| Refusal::Moved(slot, node)),
        "ASK" => redirected(detail).map_or(PROTOCOL, |(_, node)| Refusal::Ask(node)),
        "TRYAGAIN" => Refusal::TryAgain,
        // Said of one slot, in the middle of a change; of the whole cluster, it is down for longer than a call.
        "CLUSTERDOWN" if detail == "Hash slot not served" => Refusal::TryAgain,
        "NOSCRIPT" if origin == Origin::Server => Refusal::NoScript,
        _ => known(code, detail, origin),
    }
}

/// Bytes of an unexpected error that are logged.
const DETAIL_MAX: usize = 500;

const PROTOCOL: Refusal = Refusal::unavailable(Fault::Protocol);

fn known(code: &str, detail: &str, origin: Origin) -> Refusal {
    let refused = |fault, leave| Refusal::Final { error: StoreError::Unavailable { fault }, leave };
    // Refused before anything was run, or in the middle of a script that may have written.
    let stopped = |fault| match origin {
        Origin::Server => refused(fault, false),
        Origin::Script => Refusal::lost(fault, false),
    };
    match code {
        "READONLY" => refused(Fault::ReadOnly, true),
        "LOADING" => refused(Fault::Loading, true),
        "MASTERDOWN" => refused(Fault::MasterDown, true),
        "NOAUTH" | "WRONGPASS" | "DENIED" => refused(Fault::NotAuthenticated, true),
        "CLUSTERDOWN" => refused(Fault::ClusterDown, false),
        "OOM" => refused(Fault::OutOfMemory, false),
        "MISCONF" | "NOREPLICAS" => refused(Fault::WritesRefused, false),
        "BUSY" => refused(Fault::Busy, false),
        "NOPERM" => stopped(Fault::NoPermission),
        "WRONGTYPE" => stopped(Fault::ForeignKey),
        // Of the script that resets, before it writes.
        "FOREIGNKEY" => refused(Fault::ForeignKey, false),
        "NEWERFORMAT" => refused(Fault::NewerFormat, false),
        "ERR" if denied_in_script(detail) => Refusal::lost(Fault::NoPermission, false),
        "ERR" if detail.starts_with("unknown command") => refused(Fault::Protocol, false),
        // Sent to a connection that is closed right after.
        "ERR" if detail.starts_with("max number of clients") => refused(Fault::Disconnected, true),
        "CROSSSLOT" | "NOPROTO" => refused(Fault::Protocol, false),
        _ => {
            // Nothing that is expected: a fault in a script, or a server of another kind.
            tracing::error!(
                code,
                detail = detail.get(..DETAIL_MAX).unwrap_or(detail),
                "the store answers with an error"
            );
            Refusal::lost(Fault::Protocol, false)
        }
    }
}

/// Redis 7 says this without a code of its own.
fn denied_in_script(detail: &str) -> bool {
    detail.contains("The user executing the script can't") || detail.contains("ACL failure in script")
}

/// Redis 7 puts `script: <sha>` behind a refusal that a script met. Redis 6.2 packs the refusal into another:
/// `ERR Error running script (call to f_<sha>): @user_script:1: -READONLY You can't write ...`.
fn code_and_origin<'a>(code: &'a str, detail: &'a str) -> (&'a str, Origin) {
    if code == "ERR" && detail.starts_with("Error running script") {
        let packed = detail.split_ascii_whitespace().map(|word| word.trim_start_matches('-')).find(|word| {
            word.len() > 2 && *word != "ERR" && word.bytes().all(|byte| byte.is_ascii_uppercase())
        });
        return (packed.unwrap_or(code), Origin::Script);
    }
    let inside = detail.contains(" script: ") || detail.starts_with("script: ");
    (code, if inside { Origin::Script } else { Origin::Server })
}

/// `3999 127.0.0.1:6381`.
fn redirected(detail: &str) -> Option<(u16, String)> {
    let mut words = detail.split_ascii_whitespace();
    let slot = words.next()?.parse().ok()?;
    Some((slot, words.next()?.to_owned()))
}

/// A connection that broke, or a reply that makes no sense, while calls were under way.
pub(super) fn of_transport(error: &RedisError) -> Fault {
    match error.kind() {
        ErrorKind::Io => Fault::Disconnected,
        _ => Fault::Protocol,
    }
}

#[cfg(test)]
mod tests;
