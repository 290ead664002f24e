#![allow(unused_variables)]

use spile::rate_limit;

#[rate_limit(key = user_id, plan = "gold")]
async fn print(user_id: &str) {}

#[rate_limit(key = user_id, plan = "gold")]
async fn count(user_id: &str) -> usize {
    1
}

fn main() {}
