//! bin
#![allow(dead_code)]
mod config;
mod context;
mod metrics;
fn main() {}
