//! What the attribute accepts, and its errors if it is misused.

#[test]
fn the_attribute_accepts_what_it_promises_and_explains_what_it_does_not() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
