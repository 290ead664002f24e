#![allow(unused_variables)]

use spile::{RateLimitExceeded, rate_limit};

#[rate_limit(key = user_id, plan = "gold", cost = 5)]
async fn print(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[rate_limit(key = user_id, plan = "gold", burst = 5)]
async fn scan(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[rate_limit(key = user_id, permits = 5)]
async fn export(user_id: &str) -> Result<(), RateLimitExceeded> {
    Ok(())
}

fn main() {}
