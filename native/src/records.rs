//! Records of one body (`storage/formats/record.py`, Kafka's DefaultRecord).

use crate::Odd;

/// A record whose fields lie in the body; its numbers are relative to the batch.
pub struct Record<'a> {
    pub timestamp_delta_ms: i64,
    pub offset_delta: i32,
    pub key: Field<'a>,
    pub value: Field<'a>,
    pub headers_count: usize,
    headers: Fields<'a>,
}

/// A key or value. Null has no bytes, and a place.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    pub bytes: &'a [u8],
    pub is_null: bool,
}

impl<'a> Field<'a> {
    pub fn get(&self) -> Option<&'a [u8]> {
        if self.is_null { None } else { Some(self.bytes) }
    }
}

impl<'a> Record<'a> {
    /// Give the name and the value of each header.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Field<'a>)> {
        let mut fields = self.headers;
        (0..self.headers_count).map_while(move |_| fields.header().ok())
    }
}

/// Take the record at the start of `body` from it.
pub fn take_record<'a>(body: &mut &'a [u8]) -> Result<Record<'a>, Odd> {
    let mut outer = Fields(body);
    let length = usize::try_from(outer.varint()?).map_err(|_| Odd)?;
    let mut fields = Fields(outer.bytes(length)?);
    *body = outer.0;
    fields.bytes(1)?; // attributes, unused
    let timestamp_delta_ms = fields.varlong()?;
    let offset_delta = fields.varint()?;
    let key = fields.nullable()?;
    let value = fields.nullable()?;
    let headers_count = usize::try_from(fields.varint()?).map_err(|_| Odd)?;
    let headers = fields;
    for _ in 0..headers_count {
        fields.header()?;
    }
    if !fields.0.is_empty() {
        return Err(Odd);
    }
    Ok(Record {
        timestamp_delta_ms,
        offset_delta,
        key,
        value,
        headers_count,
        headers,
    })
}

/// What is left of some bytes.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[inline(always)]
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Odd> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Odd)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline(always)]
    fn unsigned(&mut self, max_bytes: u32) -> Result<u64, Odd> {
        let (&first, rest) = self.0.split_first().ok_or(Odd)?;
        self.0 = rest;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for place in 1..max_bytes {
            let (&byte, rest) = self.0.split_first().ok_or(Odd)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Odd)
    }

    /// Longer ones have no place in a batch that fits in memory.
    #[inline(always)]
    fn varint(&mut self) -> Result<i32, Odd> {
        let value = self.unsigned(4)? as u32;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, Odd> {
        let value = self.unsigned(8)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    #[inline(always)]
    fn nullable(&mut self) -> Result<Field<'a>, Odd> {
        let length = usize::try_from(self.varint()?);
        let bytes = self.bytes(length.unwrap_or(0))?;
        Ok(Field {
            bytes,
            is_null: length.is_err(),
        })
    }

    fn header(&mut self) -> Result<(&'a [u8], Field<'a>), Odd> {
        let length = usize::try_from(self.varint()?).map_err(|_| Odd)?;
        Ok((self.bytes(length)?, self.nullable()?))
    }
}
