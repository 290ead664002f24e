//! Suggestions for unknown words.

/// `did you mean `url`? `, or nothing if no known word is close to this one.
pub(crate) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    // Short words are close to each other by chance.
    let bearable = match word.len() {
        0..=3 => 1,
        4..=7 => 2,
        _ => 3,
    };
    let close = known.into_iter().map(|known| (strsim::osa_distance(word, known), known));
    let closest = close.filter(|(mistakes, _)| *mistakes <= bearable).min_by_key(|(mistakes, _)| *mistakes);
    closest.map_or_else(String::new, |(_, meant)| format!("did you mean `{meant}`? "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_few_mistakes_is_recognised_and_others_are_not() {
        for (word, meant) in [
            ("ulr", "did you mean `url`? "),
            ("prefx", "did you mean `prefix`? "),
            ("time-out", "did you mean `timeout`? "),
            ("uri_prefix_of_keys", ""),
            ("shoes", ""),
            ("", ""),
        ] {
            assert_eq!(did_you_mean(word, ["url", "prefix", "timeout"]), meant, "{word}");
        }
    }
}
