use spile::rate_limit;

#[rate_limit(key = "all", plan = "gold")]
struct Printer;

trait Prints {
    #[rate_limit(key = "all", plan = "gold")]
    async fn print(&self) -> Result<(), spile::RateLimitExceeded>;
}

fn main() {}
