//! Runs that broke promises, reduced from seeds. They are scenarios, because changed code draws other random numbers.

use spile_sim::scenario::prelude::*;

use crate::holds;

/// Between two portions a lease denies on its own, and the bucket gains tokens meanwhile.
#[test]
fn a_lease_that_is_nearly_empty_denies_although_the_bucket_has_tokens() {
    holds(&Scenario {
        seed: 232,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_941,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 30,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![PlanSpec {
            versions: vec![vec![Rate {
                capacity: 1_747_000_000,
                refill: 1_000_000_000,
                period_ms: 1000,
                debt: 0,
                lease_ms: 100,
                money: false,
            }]],
        }],
        events: vec![
            Event::ask(3371, 0, AllowAsTold(1), [1], [0], 0),
            Event::ask(3780, 0, Allow, [1], [0], 1_747_000_000),
            Event::ask(3947, 0, AllowAsTold(1), [1], [0], 1_000_000),
            Event::ask(5404, 0, AllowAsTold(1), [1], [0], 1_000_000),
            Event::ask(5645, 0, AllowAsTold(1), [1], [0], 1_000_000),
            Event::ask(5716, 0, AllowAsTold(1), [1], [0], 1_000_000),
            Event::ask(5896, 0, AllowAsTold(1), [1], [0], 1_000_000),
        ],
    });
}

/// The wait that the store named ends before the next portion is due.
#[test]
fn a_lease_denies_a_caller_who_waited_as_told() {
    holds(&Scenario {
        seed: 3855,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_998,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 20,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![PlanSpec {
            versions: vec![vec![Rate {
                capacity: 1_209_000_000,
                refill: 1_000_000_000,
                period_ms: 1000,
                debt: 0,
                lease_ms: 100,
                money: false,
            }]],
        }],
        events: vec![
            Event::ask(10_534_761, 0, UntilReady(100), [0], [0], 1_000_000),
            Event::ask(10_535_796, 0, UntilReady(100), [0], [0], 1_000_000),
            Event::ask(10_536_929, 0, UntilReady(10), [0], [0], 1_209_000_000),
            Event::ask(10_537_074, 0, Allow, [0], [0], 1_000_000),
            Event::ask(10_537_152, 0, AllowAsTold(3), [0], [0], 1_000_000),
            Event::ask(10_538_008, 0, Allow, [0], [0], 1_000_000),
            Event::ask(10_538_747, 0, Allow, [0], [0], 1_000_000),
            Event::ask(10_539_299, 0, AllowAsTold(1), [0], [0], 1_000_000),
        ],
    });
}

/// The store names the wait for what the lease lacks. By then the lease has ended, and its tokens are in no account of the caller.
#[test]
fn a_wait_that_counted_on_leased_tokens_is_too_short() {
    holds(&Scenario {
        seed: 2706,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_966,
            policy: FailClosed,
            deny_cache_ms: 0,
            lease_percent: 30,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 2_343_000_000,
                    refill: 10_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_333_000_000,
                    refill: 10_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 500,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 2_679_000_000,
                    refill: 10_000_000,
                    period_ms: 60000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 90_000_000,
                    refill: 10_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event::ask(3_111_702, 0, UntilReady(10), [0], [1], 444_333_333),
            Event::ask(3_118_591, 0, AllowAsTold(1), [0], [1], 1_000_000),
            Event::ask(3_119_169, 0, AllowAsTold(1), [0], [1], 1_000_000),
            Event::ask(3_119_459, 0, AllowAsTold(1), [0], [1], 1_000_000),
            Event::ask(3_119_586, 0, AllowAsTold(1), [0], [1], 1_000_000),
            Event::ask(3_119_613, 0, Allow, [0], [1], 1_000_000),
            Event::ask(3_119_627, 0, Allow, [0], [3, 1], 1_000_000),
            Event::ask(3_119_627, 0, Allow, [0], [1], 1_000_000),
            Event::ask(3_227_555, 0, Charge, [0], [1], 444_333_333),
            Event::ask(3_227_611, 0, AllowAsTold(1), [0], [2, 1], 1_000_000),
            Event::ask(3_228_660, 0, UntilReady(10), [0], [1], 1_000_000),
            Event::ask(3_330_290, 0, AllowAsTold(1), [0], [1], 457_938_518),
            Event { at: 3_335_240, action: Change { plan: 0, version: 2, instance: Some(0) } },
        ],
    });
}

/// An answer that is older than the portion makes the bucket look fuller than it is, so that most of the portion is not returned.
#[test]
fn a_lease_hears_of_its_bucket_as_it_was_before_the_portion() {
    holds(&Scenario {
        seed: 3713,
        fleet: FleetSpec {
            instances: 1,
            nodes: 3,
            starts: 1_785_715_196,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 50,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec { versions: vec![vec![Concurrency { permits: 200, hold_ms: 1000 }]] },
            PlanSpec {
                versions: vec![vec![
                    Quota { capacity: 34_000_000, window: Hour, debt: 0 },
                    Rate {
                        capacity: 281_000_000,
                        refill: 3_000_000,
                        period_ms: 1000,
                        debt: 0,
                        lease_ms: 500,
                        money: false,
                    },
                ]],
            },
            PlanSpec { versions: vec![vec![Concurrency { permits: 200, hold_ms: 5000 }]] },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 265_000_000,
                    refill: 1_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_752_000_000,
                    refill: 10_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event::ask(6398, 0, UntilReady(500), [0], [1], 1_000_000),
            Event::ask(6748, 0, Peek, [0], [0], 1_000_000),
            Event::ask(12206, 0, AllowAsTold(1), [0], [1], 1_000_000),
            Event::ask(22333, 0, UntilReady(100), [0], [1], 1_000_000),
            Event::ask(22338, 0, Peek, [0], [0], 1_000_000),
            Event::ask(24405, 0, Allow, [0], [1], 1_000_000),
            Event::ask(25276, 0, Allow, [0], [4], 1_000_000),
            Event::ask(42682, 0, Peek, [0], [0], 1_000_000),
            Event::ask(42793, 0, Peek, [0], [0], 1_000_000),
            Event::ask(43269, 0, Peek, [0], [0], 1_000_000),
            Event::ask(43323, 0, Acquire, [0], [0], 1_000_000),
            Event::ask(43452, 0, UntilReady(10), [0], [1], 1_000_000),
            Event::ask(45193, 0, Peek, [0], [0], 1_000_000),
            Event::ask(45395, 0, Allow, [0], [4, 1], 1_000_000),
            Event::ask(152_974, 0, Allow, [0], [1], 1_000_000),
            Event::ask(152_979, 0, Release { of: 25459, waits: false }, [0], [3], 1_000_000),
            Event::ask(153_026, 0, Release { of: 25459, waits: false }, [0], [3], 1_000_000),
            Event::ask(153_029, 0, AllowAsTold(3), [0], [1], 1_000_000),
            Event::ask(153_030, 0, Release { of: 25459, waits: false }, [0], [3], 1_000_000),
            Event::ask(153_061, 0, Release { of: 25459, waits: false }, [0], [3], 1_000_000),
            Event::ask(153_063, 0, AllowAsTold(3), [0], [1], 1_000_000),
            Event::ask(153_082, 0, Acquire, [0], [0], 1_000_000),
            Event::ask(153_086, 0, Release { of: 22726, waits: true }, [0], [0], 1_000_000),
            Event::ask(153_090, 0, Refund { of: 6992, once: false, time: Unknown }, [0], [4], 1_000_000),
            Event::ask(153_102, 0, Release { of: 34061, waits: true }, [0], [2], 1_000_000),
            Event::ask(153_328, 0, Release { of: 25459, waits: false }, [0], [3], 1_000_000),
            Event::ask(153_329, 0, Allow, [0], [1], 34_000_000),
            Event::ask(153_355, 0, AcquireWhenReady(3000), [0], [1, 2], 1_000_000),
        ],
    });
}

/// A denial for a large cost sets tokens aside. They come back to a lease that rounds their room down.
#[test]
fn a_lease_returns_less_than_there_is_room_for() {
    holds(&Scenario {
        seed: 4439,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_791_244_775,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 115_000_000,
                    refill: 1_000_000_000,
                    period_ms: 3_600_000,
                    debt: 0,
                    lease_ms: 100,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 134_000_000,
                    refill: 1_428_571,
                    period_ms: 3_600_000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec { versions: vec![vec![Concurrency { permits: 200, hold_ms: 2000 }]] },
        ],
        events: vec![
            Event::ask(12900, 0, AllowAsTold(1), [1], [0], 1_000_000),
            Event::ask(12900, 0, Allow, [1], [1], 1_000_000),
            Event::ask(116_670, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(116_728, 0, AcquireWhenReady(3000), [0], [2], 1_000_000),
            Event::ask(116_776, 0, AcquireWhenReady(300), [0], [2], 1_000_000),
            Event::ask(116_803, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(116_825, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(116_885, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(116_932, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(116_976, 0, Acquire, [1], [2], 1_000_000),
            Event::ask(116_987, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(116_994, 0, Allow, [1], [1], 1_000_000),
            Event::ask(117_037, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(117_048, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(117_349, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(117_476, 0, Allow, [1], [0], 115_000_000).in_shadow(),
            Event::ask(117_752, 0, Release { of: 28921, waits: true }, [0], [2], 1_000_000),
            Event::ask(117_826, 0, Allow, [1], [0], 115_000_000).in_shadow(),
            Event::ask(117_847, 0, Allow, [1], [0], 1_000_000).in_shadow(),
            Event::ask(118_025, 0, Allow, [1], [0], 115_000_000).in_shadow(),
        ],
    });
}

/// The set of a full limit is cut to the hold time in force, and the permits of the longer one are renewed too late.
#[test]
fn a_shorter_hold_time_ends_permits_taken_under_a_longer_one() {
    holds(&Scenario {
        seed: 6020,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_954,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 50,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![
                    vec![Concurrency { permits: 4, hold_ms: 5000 }],
                    vec![Concurrency { permits: 1, hold_ms: 1000 }],
                    vec![Concurrency { permits: 5, hold_ms: 5000 }],
                ],
            },
            PlanSpec {
                versions: vec![
                    vec![Quota { capacity: 32_000_000, window: Minute, debt: 0 }],
                    vec![Quota { capacity: 16_000_000, window: Minute, debt: 0 }],
                    vec![Quota { capacity: 16_000_000, window: Minute, debt: 0 }],
                ],
            },
        ],
        events: vec![
            Event::ask(17_826_690, 0, AcquireWhenReady(3000), [0], [0], 1_000_000),
            Event { at: 23_939_339, action: Change { plan: 0, version: 1, instance: None } },
            Event::ask(27_043_839, 0, Reset, [0], [0], 1_000_000),
            Event::ask(27_046_839, 0, Acquire, [0], [0], 1_000_000),
            Event::ask(30_046_839, 0, Reset, [0], [0], 1_000_000),
            Event::ask(30_054_339, 0, Acquire, [0], [0], 1_000_000),
            Event::ask(30_357_924, 0, Reset, [1], [1], 1_000_000),
        ],
    });
}

/// The first attempt waits for a release under way. The second one has another deadline (K12).
#[test]
fn an_acquire_that_meets_a_release_takes_longer_than_its_deadline() {
    holds(&Scenario {
        seed: 988,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_949,
            policy: FailClosed,
            deny_cache_ms: 20,
            lease_percent: 10,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![PlanSpec {
            versions: vec![
                vec![Concurrency { permits: 200, hold_ms: 5000 }],
                vec![Concurrency { permits: 1, hold_ms: 5000 }],
            ],
        }],
        events: vec![
            Event::ask(8_563_756, 0, Acquire, [0], [0], 1_000_000),
            Event { at: 8_563_756, action: Change { plan: 0, version: 1, instance: None } },
            Event { at: 8_571_656, action: Fault(Slow(90000, 700)) },
            Event::ask(8_573_222, 0, Acquire, [0], [0], 1_000_000),
            Event::ask(8_573_875, 0, Release { of: 17199, waits: false }, [1], [0], 1_000_000),
        ],
    });
}

/// A hash of a newer version that expires on a read-only server is there again after a step back, and is refused.
#[test]
fn a_hash_of_a_newer_version_comes_back() {
    holds(&Scenario {
        seed: 3635,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_942,
            policy: FailOpen,
            deny_cache_ms: 0,
            lease_percent: 30,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![PlanSpec {
            versions: vec![vec![
                Rate {
                    capacity: 19_654_821,
                    refill: 1_000_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                },
                Concurrency { permits: 1, hold_ms: 1000 },
            ]],
        }],
        events: vec![
            Event::ask(27_709_353, 0, Charge, [0], [0], 1_000_000),
            Event { at: 27_854_139, action: Fault(Tamper(0, 3, NewerFormat(500))) },
            Event { at: 27_955_539, action: Fault(ReadOnly(0, 2500)) },
            Event { at: 30_965_139, action: Fault(StepNode(0, -5000)) },
            Event::ask(31_066_639, 0, Acquire, [0], [0], 1_000_000),
        ],
    });
}

/// A question that was delayed acquires a permit that was taken again meanwhile. In the same call, another one finds a free place.
#[test]
fn a_permit_that_is_acquired_after_it_was_taken_again_counts_once() {
    holds(&Scenario {
        seed: 20838,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_999,
            policy: FailOpen,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 20,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec { versions: vec![vec![Concurrency { permits: 2, hold_ms: 2000 }]] },
            PlanSpec { versions: vec![vec![Concurrency { permits: 4, hold_ms: 5000 }]] },
        ],
        events: vec![
            Event { at: 25_275_213, action: Fault(Freeze(0, 2500)) },
            Event::ask(25_275_313, 0, Acquire, [1], [1], 1_000_000),
            Event::ask(25_275_313, 0, Acquire, [2], [0], 1_000_000),
            Event::ask(25_275_313, 0, AcquireWhenReady(20), [2], [0], 1_000_000),
            Event { at: 27_163_276, action: Fault(Freeze(0, 30)) },
        ],
    });
}

/// A write whose time to live is refused, and a step back of an hour: the next write decides when the key ends.
#[test]
fn a_key_whose_expiry_was_refused_expires_after_the_next_write() {
    holds(&Scenario {
        seed: 42348,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_996,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_286_000_000,
                    refill: 3_000_000,
                    period_ms: 60000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_718_000_000,
                    refill: 142_857_142,
                    period_ms: 60000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 3_000_000,
                    refill: 1_000_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event::ask(112_679, 0, Reserve(1), [1], [2], 1_000_000),
            Event::ask(15_486_843, 0, Allow, [1], [2], 1_000_000),
            Event { at: 15_624_152, action: Fault(DenyCommand(0, 38, 120)) },
            Event::ask(15_727_252, 0, Reserve(1), [1], [2], 1_000_000),
            Event { at: 16_837_366, action: Fault(StepNode(0, -3_600_000)) },
            Event::ask(24_233_391, 0, Reserve(1), [1], [1], 1_000_000),
            Event::ask(28_457_496, 0, Settle { of: 2519, percent: 50 }, [0], [0], 1_000_000),
            Event::ask(28_457_496, 0, Settle { of: 51017, percent: 50 }, [0], [2], 1_000_000),
        ],
    });
}

/// A refund waits in a partition until the clock has stepped beyond the marker of the first one.
#[test]
fn a_refund_that_failed_is_given_again_once_its_marker_is_forgotten() {
    holds(&Scenario {
        seed: 53642,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_786_665_582,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 50,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_284_000_000,
                    refill: 1_000_000,
                    period_ms: 3_600_000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_403_000_000,
                    refill: 142_857,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event::ask(6_234_797, 0, Allow, [1], [1], 1_000_000),
            Event::ask(6_235_203, 0, Refund { of: 11746, once: true, time: Known }, [1], [1], 1_000_000),
            Event { at: 10_364_849, action: Fault(Partition(0, 0, 2500)) },
            Event::ask(10_369_848, 0, Refund { of: 56746, once: false, time: Known }, [0], [0], 1_000_000),
            Event { at: 11_830_236, action: Fault(StepNode(0, 3_600_000)) },
        ],
    });
}

/// Peeks that renew cached denials do not rebase a bucket that is ahead of the clock. They used to report it as empty each time.
#[test]
fn a_caller_is_let_in_after_the_clock_of_redis_has_stepped_back() {
    holds(&Scenario {
        seed: 76784,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_994,
            policy: FailOpen,
            deny_cache_ms: 100,
            lease_percent: 10,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![
                    vec![Rate {
                        capacity: 2_000_000,
                        refill: 14_285_714,
                        period_ms: 1000,
                        debt: 0,
                        lease_ms: 0,
                        money: false,
                    }],
                    vec![Rate {
                        capacity: 1_000_000,
                        refill: 142_857,
                        period_ms: 1000,
                        debt: 0,
                        lease_ms: 0,
                        money: false,
                    }],
                    vec![Rate {
                        capacity: 1_000_000,
                        refill: 4_761_904,
                        period_ms: 1000,
                        debt: 0,
                        lease_ms: 0,
                        money: false,
                    }],
                ],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 6_431_497,
                    refill: 3_000_000,
                    period_ms: 60000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event { at: 5_248_057, action: Change { plan: 0, version: 2, instance: None } },
            Event::ask(8_424_307, 0, Allow, [2], [0], 1_000_000),
            Event::ask(8_424_307, 0, AllowAsTold(3), [2], [0], 666_666),
            Event::ask(8_525_010, 0, Refund { of: 37509, once: true, time: Known }, [1], [1], 1_000_000),
            Event::ask(8_525_347, 0, SpendUpTo, [2], [1, 0], 1_000_000),
            Event::ask(8_632_861, 0, AllowAsTold(3), [2], [0], 1_000_000),
            Event { at: 8_637_569, action: Fault(StepNode(0, -5000)) },
        ],
    });
}

/// A clock that steps back keeps a permit for an hour. A question that a newer hash refuses shortens it all the same.
#[test]
fn a_permit_of_a_killed_instance_is_shortened_by_a_refused_question() {
    holds(&Scenario {
        seed: 72965,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_952,
            policy: FailOpen,
            deny_cache_ms: 0,
            lease_percent: 30,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec { versions: vec![vec![Quota { capacity: 32_000_000, window: Day, debt: 0 }]] },
            PlanSpec { versions: vec![vec![Concurrency { permits: 1, hold_ms: 2000 }]] },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 118_000_000,
                    refill: 100_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![
                    Quota { capacity: 53_000_000, window: Hour, debt: 0 },
                    Concurrency { permits: 1, hold_ms: 1000 },
                ]],
            },
        ],
        events: vec![
            Event::ask(3500, 0, Acquire, [0, 1], [3], 1_000_000),
            Event { at: 1_114_000, action: Fault(StepNode(0, -3_600_000)) },
            Event::ask(1_115_500, 0, Acquire, [1], [0], 1_000_000),
            Event { at: 1_117_000, action: Fault(Kill(0, 2500)) },
            Event::ask(5_126_100, 0, Acquire, [1], [2], 1_000_000),
            Event { at: 18_576_686, action: Fault(Tamper(0, 2, NewerFormat(500))) },
            Event::ask(19_021_775, 0, Acquire, [1], [1, 3], 1_000_000),
            Event { at: 19_023_816, action: Fault(StepNode(0, -500)) },
        ],
    });
}

/// A key that had expired is there again if the clock steps back and a replica takes over.
#[test]
fn a_replica_that_takes_over_has_keys_that_were_hidden() {
    holds(&Scenario {
        seed: 76363,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_957,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 2_000_000,
                    refill: 1_000_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 6_612_067,
                    refill: 1_428_571,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event::ask(36_842_088, 0, Allow, [1], [0], 1_000_000),
            Event { at: 39_948_997, action: Fault(Demote(0)) },
            Event::ask(39_949_743, 0, AllowAsTold(3), [1], [0], 0),
            Event::ask(43_957_243, 0, Charge, [0], [1], 1_000_000),
            Event { at: 44_077_243, action: Fault(StepNode(0, -3_600_000)) },
            Event { at: 44_209_382, action: Fault(FailOver(0, 5, 200)) },
            Event::ask(44_210_314, 0, Refund { of: 21213, once: true, time: Known }, [0], [0], 1_000_000),
            Event::ask(44_248_173, 0, Refund { of: 21213, once: true, time: Known }, [0], [0], 1_000_000),
        ],
    });
}

/// An acquire is late on one node. The release finds no permit there and one on the other node, so that it counts as done.
#[test]
fn a_release_on_one_of_several_nodes_arrives_before_its_acquire() {
    holds(&Scenario {
        seed: 96904,
        fleet: FleetSpec {
            instances: 1,
            nodes: 2,
            starts: 1_782_431_960,
            policy: FailClosed,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 100,
            connections: 2,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec { versions: vec![vec![Concurrency { permits: 4, hold_ms: 5000 }]] },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 13_000_000,
                    refill: 1_000_000_000,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event { at: 1_124_900, action: Fault(Partition(0, 1, 120)) },
            Event::ask(1_134_000, 0, Acquire, [2, 0], [0], 1_000_000),
            Event::ask(2_243_000, 0, Reset, [1], [1], 1_000_000),
            Event::ask(5_244_500, 0, Allow, [2], [1], 1_000_000),
        ],
    });
}

/// A replica takes over that lacks a settlement. Settling again returns what was reserved once more.
#[test]
fn a_settlement_that_was_lost_is_made_again() {
    holds(&Scenario {
        seed: 99439,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_947,
            policy: FailClosed,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 50,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 5_679_467,
                    refill: 1_000_000,
                    period_ms: 60000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 5_729_763,
                    refill: 100_000_000,
                    period_ms: 3_600_000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 2_000_000,
                    refill: 1_000_000,
                    period_ms: 60000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
            PlanSpec {
                versions: vec![vec![Rate {
                    capacity: 1_000_000,
                    refill: 142_857_142,
                    period_ms: 1000,
                    debt: 0,
                    lease_ms: 0,
                    money: false,
                }]],
            },
        ],
        events: vec![
            Event::ask(9_792_025, 0, Allow, [2], [1], 1_000_000),
            Event::ask(9_801_334, 0, Reserve(2), [1], [3], 1_000_000),
            Event::ask(9_809_208, 0, Allow, [1], [2], 1_000_000),
            Event::ask(10_084_709, 0, Settle { of: 62808, percent: 0 }, [0], [0], 1_000_000),
            Event { at: 10_247_120, action: Fault(FailOver(0, 5, 200)) },
            Event::ask(10_360_920, 0, Settle { of: 32525, percent: 0 }, [2], [2], 1_000_000),
        ],
    });
}

/// A replica neither shows nor removes permits of a set that has expired. They are removed once it takes writes.
#[test]
fn a_set_that_a_replica_hid_comes_back_with_ended_permits() {
    holds(&Scenario {
        seed: 47197,
        fleet: FleetSpec {
            instances: 2,
            nodes: 1,
            starts: 1_782_431_954,
            policy: FailOpen,
            deny_cache_ms: 0,
            lease_percent: 50,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec { versions: vec![vec![Concurrency { permits: 4, hold_ms: 1000 }]] },
            PlanSpec {
                versions: vec![
                    vec![
                        Concurrency { permits: 4, hold_ms: 2000 },
                        Concurrency { permits: 3, hold_ms: 5000 },
                    ],
                    vec![
                        Concurrency { permits: 5, hold_ms: 1000 },
                        Concurrency { permits: 1, hold_ms: 5000 },
                    ],
                    vec![
                        Concurrency { permits: 3, hold_ms: 1000 },
                        Quota { capacity: 25_000_000, window: DayInNewYork, debt: 0 },
                    ],
                ],
            },
        ],
        events: vec![
            Event::ask(3_025_953, 1, Acquire, [1], [1], 1_000_000),
            Event::ask(6_032_053, 1, Acquire, [1], [1], 1_000_000),
            Event { at: 6_033_553, action: Change { plan: 1, version: 2, instance: None } },
            Event { at: 9_075_453, action: Fault(Demote(0)) },
            Event { at: 9_189_053, action: Fault(StepNode(0, -5000)) },
            Event::ask(9_189_053, 0, Acquire, [0, 1], [1], 1_000_000),
            Event::ask(9_190_553, 0, Acquire, [0, 1], [1], 1_000_000),
            Event { at: 9_213_053, action: Fault(Freeze(0, 1000)) },
            Event::ask(10_340_553, 1, Release { of: 0, waits: true }, [0], [0], 1_000_000),
        ],
    });
}

/// The clock of a replica steps back, and it takes over without the latest writes.
#[test]
fn a_replica_that_takes_over_has_permits_that_ended() {
    holds(&Scenario {
        seed: 83427,
        fleet: FleetSpec {
            instances: 1,
            nodes: 1,
            starts: 1_782_431_997,
            policy: FailClosed,
            deny_cache_ms: 0,
            lease_percent: 10,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![PlanSpec { versions: vec![vec![Concurrency { permits: 3, hold_ms: 1000 }]] }],
        events: vec![
            Event::ask(31_210_657, 0, Acquire, [0, 1], [0], 1_000_000),
            Event::ask(32_437_157, 0, Acquire, [0], [0], 1_000_000),
            Event { at: 33_541_095, action: Fault(Demote(0)) },
            Event::ask(33_542_695, 0, Acquire, [0], [0], 1_000_000),
            Event { at: 33_542_695, action: Fault(StepNode(0, -3_600_000)) },
            Event::ask(33_542_695, 0, Acquire, [0], [0], 1_000_000),
            Event { at: 33_956_636, action: Fault(FailOver(0, 700, 200)) },
            Event::ask(34_880_860, 0, Release { of: 40413, waits: false }, [0], [0], 1_000_000),
            Event::ask(34_893_610, 0, Release { of: 40413, waits: false }, [0], [0], 1_000_000),
        ],
    });
}

#[test]
fn the_rest_of_a_settlement_without_its_marker_is_looked_at() {
    holds(&Scenario {
        seed: 100_016,
        fleet: FleetSpec {
            instances: 1,
            nodes: 2,
            starts: 1_790_467_192,
            policy: Local,
            deny_cache_ms: 0,
            lease_percent: 30,
            timeout_ms: 100,
            connections: 1,
            drift_ppm: 0,
            node_drift_ppm: 0,
        },
        plans: vec![
            PlanSpec { versions: vec![vec![Quota { capacity: 49_000_000, window: Minute, debt: 0 }]] },
            PlanSpec { versions: vec![vec![Quota { capacity: 11_000_000, window: DayInNewYork, debt: 0 }]] },
        ],
        events: vec![
            Event::ask(2_000, 0, Reserve(60), [1, 0], [0], 1_000_000),
            Event::ask(246_800, 0, Reserve(60), [1], [0], 1_000_000),
            Event { at: 272_713, action: Fault(Tamper(1, 2, Retype)) },
            Event::ask(494_414, 0, Settle { of: 21401, percent: 50 }, [1], [1], 1_000_000),
        ],
    });
}
