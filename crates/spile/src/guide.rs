//! The guide's pages, so that their code is compiled and run with the tests.

macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = include_str!(concat!("../../../docs/guide/", $file))]
        pub struct $name;
    };
}

page!(QuickStart, "quick-start.md");
page!(ChoosingAKey, "choosing-a-key.md");
page!(PlansAndChains, "plans-and-chains.md");
page!(FailurePolicies, "failure-policies.md");
page!(TestingYourLimits, "testing-your-limits.md");
page!(MovingFromGovernor, "moving-from-governor.md");
