//! Reads a reply from left to right.

use spile_resp::Value;

/// The numbers of a reply.
pub(super) struct Replied<'a> {
    values: &'a [Value],
    at: usize,
}

/// A reply by its form.
pub(super) enum Form<'a> {
    Answered(Replied<'a>),
    /// Redis refused a command: its error, and whether anything was written before.
    Refused(String, bool),
}

/// Reads the sequence of a reply, and finds out its form.
pub(super) fn open(reply: &Value, sequence: i128) -> Result<Form<'_>, String> {
    let values = match reply {
        Value::Array(values) => values,
        Value::Error(error) => return Err(format!("the script failed: {error}")),
        other => return Err(format!("replied {other:?} and not an array")),
    };
    let mut replied = Replied { values, at: 0 };
    let own = replied.int()?;
    if own != sequence {
        return Err(format!("expected sequence {sequence}, replied {own}"));
    }
    match values.as_slice() {
        [_, Value::Text(error), Value::Int(wrote @ 0..=1)] => {
            Ok(Form::Refused(String::from_utf8_lossy(error).into_owned(), *wrote == 1))
        }
        _ => Ok(Form::Answered(replied)),
    }
}

impl Replied<'_> {
    pub(super) fn int(&mut self) -> Result<i128, String> {
        self.at += 1;
        match self.values.get(self.at - 1) {
            Some(Value::Int(number)) => Ok((*number).into()),
            Some(other) => Err(format!("entry {} of the reply is {other:?} and not a number", self.at)),
            None => Err(format!("reply ends after {} entries", self.at - 1)),
        }
    }

    pub(super) fn text(&mut self) -> Result<&[u8], String> {
        self.at += 1;
        match self.values.get(self.at - 1) {
            Some(Value::Text(text)) => Ok(text),
            other => Err(format!("entry {} of the reply is {other:?} and not a text", self.at)),
        }
    }

    /// Reads a number that can only be this one.
    pub(super) fn expect(&mut self, what: &str, expected: i128) -> Result<(), String> {
        let number = self.int()?;
        if number == expected { Ok(()) } else { Err(format!("expected {what} {expected}, replied {number}")) }
    }

    pub(super) fn end(&self) -> Result<(), String> {
        match self.values.len() - self.at {
            0 => Ok(()),
            more => Err(format!("reply has {more} entries too many")),
        }
    }
}
