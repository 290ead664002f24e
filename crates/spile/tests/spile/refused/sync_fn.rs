#![allow(unused_variables)]

use spile::{RateLimitExceeded, rate_limit};

#[rate_limit(key = user_id, plan = "gold")]
fn print(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn main() {}
