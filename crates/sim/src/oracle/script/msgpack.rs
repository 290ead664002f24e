//! Decodes the `MessagePack` values that a call brings.

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item<'a> {
    Int(i128),
    Double(f64),
    Text(&'a [u8]),
    Bool(bool),
    Nil,
}

/// The values in their order. Arrays and maps are refused, because no call has them.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Item<'_>>, String> {
    let mut reader = Reader { bytes, at: 0 };
    let mut items = Vec::with_capacity(bytes.len() / 2);
    while reader.at < bytes.len() {
        items.push(reader.item()?);
    }
    Ok(items)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn item(&mut self) -> Result<Item<'a>, String> {
        Ok(match self.byte()? {
            small @ 0..=0x7f => Item::Int(small.into()),
            text @ 0xa0..=0xbf => Item::Text(self.take((text & 0x1f).into())?),
            0xc0 => Item::Nil,
            0xc2 => Item::Bool(false),
            0xc3 => Item::Bool(true),
            0xc4 | 0xd9 => self.text(1)?,
            0xc5 | 0xda => self.text(2)?,
            0xc6 | 0xdb => self.text(4)?,
            0xca => Item::Double(f32::from_bits(self.unsigned(4)? as u32).into()),
            0xcb => Item::Double(f64::from_bits(self.unsigned(8)?)),
            0xcc => Item::Int(self.unsigned(1)?.into()),
            0xcd => Item::Int(self.unsigned(2)?.into()),
            0xce => Item::Int(self.unsigned(4)?.into()),
            0xcf => Item::Int(self.unsigned(8)?.into()),
            0xd0 => self.signed(1)?,
            0xd1 => self.signed(2)?,
            0xd2 => self.signed(4)?,
            0xd3 => self.signed(8)?,
            negative @ 0xe0..=0xff => Item::Int(i128::from(negative) - 0x100),
            other => return Err(format!("argument has an entry of the unexpected kind {other:#x}")),
        })
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let taken = self.bytes.get(self.at..self.at + length).ok_or("argument ends too early")?;
        self.at += length;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, String> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, width: usize) -> Result<Item<'a>, String> {
        let number = i128::from(self.unsigned(width)?);
        let beyond = 1 << (8 * width);
        Ok(Item::Int(if number < beyond / 2 { number } else { number - beyond }))
    }

    fn length(&mut self, width: usize) -> Result<usize, String> {
        Ok(self.unsigned(width)? as usize)
    }

    fn text(&mut self, width: usize) -> Result<Item<'a>, String> {
        let length = self.length(width)?;
        Ok(Item::Text(self.take(length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Item, decode};

    #[test]
    fn every_kind_of_entry_is_decoded() {
        let bytes = [
            &[5, 0xcd, 1, 2, 0xd3][..],
            &(-7_i64).to_be_bytes(),
            &[0xff, 0xd0, 0x80, 0xcb],
            &1.5_f64.to_be_bytes(),
            &[0xc2, 0xc3, 0xc0, 0xa2, b'h', b'i', 0xd9, 1, b't', 0xce, 1, 0, 0, 0],
        ];
        let expected = [
            Item::Int(5),
            Item::Int(258),
            Item::Int(-7),
            Item::Int(-1),
            Item::Int(-128),
            Item::Double(1.5),
            Item::Bool(false),
            Item::Bool(true),
            Item::Nil,
            Item::Text(b"hi"),
            Item::Text(b"t"),
            Item::Int(0x0100_0000),
        ];
        let mut bytes = bytes.concat();
        assert_eq!(decode(&bytes), Ok(expected.to_vec()));
        for end in 0..bytes.len() {
            let is_cut = |items: Vec<Item<'_>>| items.len() < expected.len() && expected.starts_with(&items);
            assert!(decode(&bytes[..end]).is_ok_and(is_cut) || decode(&bytes[..end]).is_err(), "{end} bytes");
        }
        bytes.push(0xc1);
        assert!(decode(&bytes).is_err());
    }
}
