#![allow(unused_variables)]

use spile::{RateLimitExceeded, rate_limit};

#[rate_limit(user_id, plan = "gold")]
async fn print(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn main() {}
