//! The unit of a limit, which sets the smallest amount that a question of cost 0 asks for.

use std::fmt;
use std::str::FromStr;

use crate::Amount;

/// The unit that a limit counts in. It sets the [quantum](Self::quantum).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Unit {
    /// Requests: whole tokens.
    #[default]
    Requests,
    /// Tokens of a language model: whole tokens.
    Tokens,
    /// Money: micro-tokens.
    Money(Currency),
}

/// A currency: a code of ISO 4217.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Currency(u8);

/// The codes of currencies in ISO 4217, in lower case, sorted. Funds, metals and codes for tests are left out.
const CODES: &[&str] = &[
    "aed", "afn", "all", "amd", "aoa", "ars", "aud", "awg", "azn", "bam", "bbd", "bdt", "bgn", "bhd", "bif",
    "bmd", "bnd", "bob", "brl", "bsd", "btn", "bwp", "byn", "bzd", "cad", "cdf", "chf", "clp", "cny", "cop",
    "crc", "cup", "cve", "czk", "djf", "dkk", "dop", "dzd", "egp", "ern", "etb", "eur", "fjd", "fkp", "gbp",
    "gel", "ghs", "gip", "gmd", "gnf", "gtq", "gyd", "hkd", "hnl", "htg", "huf", "idr", "ils", "inr", "iqd",
    "irr", "isk", "jmd", "jod", "jpy", "kes", "kgs", "khr", "kmf", "kpw", "krw", "kwd", "kyd", "kzt", "lak",
    "lbp", "lkr", "lrd", "lsl", "lyd", "mad", "mdl", "mga", "mkd", "mmk", "mnt", "mop", "mru", "mur", "mvr",
    "mwk", "mxn", "myr", "mzn", "nad", "ngn", "nio", "nok", "npr", "nzd", "omr", "pab", "pen", "pgk", "php",
    "pkr", "pln", "pyg", "qar", "ron", "rsd", "rub", "rwf", "sar", "sbd", "scr", "sdg", "sek", "sgd", "shp",
    "sle", "sos", "srd", "ssp", "stn", "svc", "syp", "szl", "thb", "tjs", "tmt", "tnd", "top", "try", "ttd",
    "twd", "tzs", "uah", "ugx", "usd", "uyu", "uzs", "ved", "ves", "vnd", "vuv", "wst", "xaf", "xcd", "xcg",
    "xof", "xpf", "yer", "zar", "zmw", "zwg",
];

impl Unit {
    /// The smallest amount that a question of cost 0 asks for. Partial grants are multiples of it.
    #[inline]
    pub const fn quantum(self) -> Amount {
        match self {
            Self::Requests | Self::Tokens => Amount::TOKEN,
            Self::Money(_) => Amount::from_micro(1),
        }
    }

    /// The name in files and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Money(Currency(index)) => CODES[index as usize],
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Unit {
    type Err = UnknownUnit;

    fn from_str(text: &str) -> Result<Self, UnknownUnit> {
        match text {
            "requests" => Ok(Self::Requests),
            "tokens" => Ok(Self::Tokens),
            code => match CODES.binary_search(&code).map(u8::try_from) {
                Ok(Ok(index)) => Ok(Self::Money(Currency(index))),
                _ => Err(UnknownUnit),
            },
        }
    }
}

/// The text is not a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a unit: write `requests`, `tokens` or a currency of ISO 4217 in lower case, as in `usd`")]
pub struct UnknownUnit;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_reads_back_as_it_is_written_and_sets_the_quantum() {
        for (text, quantum) in [("requests", 1_000_000), ("tokens", 1_000_000), ("usd", 1), ("zwg", 1)] {
            let unit: Unit = text.parse().expect("a unit");
            assert_eq!((unit.as_str(), unit.quantum().micro()), (text, quantum));
        }
        for text in ["", "USD", "dollars", "xxx", "usd "] {
            assert_eq!(text.parse::<Unit>(), Err(UnknownUnit), "{text}");
        }
        assert!(CODES.is_sorted() && CODES.iter().all(|code| code.parse::<Unit>().is_ok()));
    }
}
