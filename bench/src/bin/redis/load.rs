//! Callers that ask one after the other, all at once, and what that cost Redis.

use std::sync::Arc;
use std::time::Instant;

use spile_testkit::redis::RedisServer;

/// Who asks, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) callers: usize,
    pub(crate) decisions: usize,
    /// Keys that each caller goes round; zero makes everybody share one.
    pub(crate) keys: usize,
}

/// What a load cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Microseconds of Redis CPU per decision.
    pub(crate) cpu_us: f64,
    /// Decisions per second.
    pub(crate) rate: f64,
    /// Microseconds that the median decision took.
    pub(crate) latency_us: f64,
}

impl Load {
    /// Runs the load through `ask`, which is given the caller and the key.
    pub(crate) async fn run<F, Fut>(self, server: &RedisServer, ask: F) -> Cost
    where
        F: Fn(usize, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let ask = Arc::new(ask);
        let each = self.decisions / self.callers;
        let (cpu, began) = (server.cpu_seconds(), Instant::now());
        let callers: Vec<_> = (0..self.callers)
            .map(|caller| {
                let ask = Arc::clone(&ask);
                tokio::spawn(async move {
                    let mut took = Vec::with_capacity(each);
                    for turn in 0..each {
                        let key = self.key(caller, turn);
                        let asked = Instant::now();
                        ask(caller, key).await;
                        took.push(asked.elapsed().as_secs_f64() * 1e6);
                    }
                    took
                })
            })
            .collect();
        let mut took = Vec::with_capacity(self.decisions);
        for caller in callers {
            took.extend(caller.await.expect("no caller panics"));
        }
        let (elapsed, made) = (began.elapsed().as_secs_f64(), took.len() as f64);
        let cpu_us = (server.cpu_seconds() - cpu) * 1e6 / made;
        Cost { cpu_us, rate: made / elapsed, latency_us: spile_bench::median(took) }
    }

    fn key(self, caller: usize, turn: usize) -> String {
        if self.keys == 0 { "hot".to_owned() } else { format!("user:{caller}-{}", turn % self.keys) }
    }
}
