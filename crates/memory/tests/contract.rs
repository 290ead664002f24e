//! The embedded store passes the contract, with and without sweeping.

use std::future::{Ready, ready};

use spile_core::FakeClock;
use spile_memory::MemoryStore;

mod as_it_comes {
    use super::*;

    fn make(clock: FakeClock) -> Ready<(MemoryStore<FakeClock>, ())> {
        ready((MemoryStore::builder().clock(clock).build(), ()))
    }

    spile_testkit::store_contract!(make);
}

mod in_a_single_shard {
    use super::*;

    fn make(clock: FakeClock) -> Ready<(MemoryStore<FakeClock>, ())> {
        ready((MemoryStore::builder().clock(clock).max_keys(8_000).sweep(64).build(), ()))
    }

    spile_testkit::store_contract!(make);
}

mod the_model {
    use spile_testkit::store::ModelStore;

    use super::*;

    fn make(clock: FakeClock) -> Ready<(ModelStore<FakeClock>, ())> {
        ready((ModelStore::new(clock), ()))
    }

    spile_testkit::store_contract!(make);
}
