#![allow(unused_variables)]

use spile::{RateLimitExceeded, rate_limit};

#[rate_limit(key = user_id, plan = "gold", plans = ["gold", "daily"])]
async fn print(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[rate_limit(key = user_id, key = user_id, plan = "gold")]
async fn scan(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn main() {}
