//! bin
#![allow(dead_code)]
mod config;
mod context;
mod gateway;
mod metrics;
mod serving;
fn main() {}
