//! Names of the variants of enums.

/// Gives the variants of an enum their names in files, in the API and in metrics.
macro_rules! words {
    ($name:ident: $($variant:ident = $word:literal),*) => {
        impl $name {
            /// The name in files, in the API and in metrics.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

pub(crate) use words;
