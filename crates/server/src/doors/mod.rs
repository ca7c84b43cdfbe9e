//! What the API and the admin port have in common: who is let in, how a body is read, what a question to the
//! limiter looks like, and how a refusal is written. Not the gateway, whose callers are browsers and whose
//! bodies are not ours.
//!
//! A request meets, in this order: [`origin`] (is it a web page's?), [`auth`] (may the caller?), the router
//! (which endpoint?), [`body`] (can it be read?), [`question`] (does it mean something?), the limiter. Who is
//! not let in learns nothing about what there is.

pub(crate) mod auth;
pub(crate) mod body;
mod handler;
pub(crate) mod origin;
pub(crate) mod problem;
pub(crate) mod question;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use handler::DoorHandler;

use axum::Router;
use axum::extract::Request;
use http::StatusCode;
use slidegate::spelling::nearest;

use problem::Problem;

/// Answers what no endpoint of a port takes: 404 with the nearest path, 405 with `Allow`. Call it last, so
/// that it covers every route, and before the layers that are to cover it too.
pub(crate) fn refuse_the_rest<S>(routes: Router<S>, paths: &'static [&'static str]) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    refuse_wrong_methods(routes)
        .fallback(move |request: Request| async move { unknown_path(request.uri().path(), paths) })
}

/// Only the 405 of [`refuse_the_rest`], for routes that are merged into others.
pub(crate) fn refuse_wrong_methods<S>(routes: Router<S>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    routes.method_not_allowed_fallback(wrong_method)
}

/// `Allow` is added by the router, which knows the methods of the path.
async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

fn unknown_path(path: &str, paths: &[&str]) -> Problem {
    let hint = match nearest(path, paths.iter()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("this port has {}", paths.join(", ")),
    };
    Problem::new(StatusCode::NOT_FOUND, format!("nothing is at {path}: {hint}"))
}
