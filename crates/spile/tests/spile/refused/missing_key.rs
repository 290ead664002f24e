#![allow(unused_variables)]

use spile::{RateLimitExceeded, rate_limit};

#[rate_limit(plan = "gold")]
async fn print(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[rate_limit]
async fn scan(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn main() {}
