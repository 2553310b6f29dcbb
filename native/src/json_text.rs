//! Records as JSON Lines: consumed ones (`eoctl/clients/text/record_writers.py` is their definition),
//! and exported ones (`recovery/export/piece.py`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Columns of records; null has -1 bytes. Positions are places in `source`.
pub struct Records<'a> {
    pub source: &'a [u8],
    pub offset: &'a [i64],
    pub timestamp_ms: &'a [i64],
    pub key: Fields<'a>,
    pub value: Fields<'a>,
    pub headers_count: &'a [i64],
    pub first_header: &'a [i64],
    pub header_key: Fields<'a>,
    pub header_value: Fields<'a>,
}

/// A column of bytes: where each lies, and its size.
pub struct Fields<'a> {
    pub pos: &'a [i64],
    pub size: &'a [i64],
}

/// A column does not fit to the others, or points outside of the source.
#[derive(Debug)]
pub struct Misfit;

impl Fields<'_> {
    fn get<'s>(&self, source: &'s [u8], row: usize) -> Result<Option<&'s [u8]>, Misfit> {
        let size = *self.size.get(row).ok_or(Misfit)?;
        let Ok(size) = usize::try_from(size) else {
            return Ok(None);
        };
        let pos = usize::try_from(*self.pos.get(row).ok_or(Misfit)?).map_err(|_| Misfit)?;
        let end = pos.checked_add(size).ok_or(Misfit)?;
        source.get(pos..end).map(Some).ok_or(Misfit)
    }
}

fn push_number(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Return an object a line.
///
/// `timestamp_type` is JSON already. With `is_base64` keys and values are that, whatever they are.
pub fn json_lines(
    records: &Records,
    timestamp_type: &str,
    is_base64: bool,
) -> Result<Vec<u8>, Misfit> {
    let source = records.source;
    let push: fn(&mut Vec<u8>, Option<&[u8]>) = if is_base64 { push_base64 } else { push_text };
    let mut out = Vec::with_capacity(records.offset.len() * 128);
    for (row, &offset) in records.offset.iter().enumerate() {
        out.extend_from_slice(b"{\"offset\":");
        push_number(&mut out, offset);
        out.extend_from_slice(b",\"timestamp_ms\":");
        push_number(&mut out, *records.timestamp_ms.get(row).ok_or(Misfit)?);
        out.extend_from_slice(b",\"timestamp_type\":");
        out.extend_from_slice(timestamp_type.as_bytes());
        out.extend_from_slice(b",\"key\":");
        push(&mut out, records.key.get(source, row)?);
        out.extend_from_slice(b",\"value\":");
        push(&mut out, records.value.get(source, row)?);
        out.extend_from_slice(b",\"headers\":[");
        let count = *records.headers_count.get(row).ok_or(Misfit)?;
        let first = if count > 0 {
            *records.first_header.get(row).ok_or(Misfit)?
        } else {
            0
        };
        for place in first..first + count {
            let header = usize::try_from(place).map_err(|_| Misfit)?;
            out.extend_from_slice(if place > first { b",[" } else { b"[" });
            push_text(&mut out, records.header_key.get(source, header)?);
            out.push(b',');
            push(&mut out, records.header_value.get(source, header)?);
            out.push(b']');
        }
        out.extend_from_slice(b"]}\n");
    }
    Ok(out)
}

/// A column of exported records; nothing of it depends on another one.
pub enum Column {
    /// Behind the name and a colon.
    Numbers(String, Vec<i64>),
    /// One of these texts, which have the name in them.
    Choices(Vec<String>, Vec<i64>),
    Bytes(Named),
    /// How many each record has, their keys and their values.
    Headers(String, Vec<i64>, Named, Named),
}

/// A column of bytes that says by its name how they are written; see `Fields`.
pub struct Named {
    pub name: String,
    pub source: Vec<u8>,
    pub pos: Vec<i64>,
    pub size: Vec<i64>,
}

impl Named {
    fn push(&self, out: &mut Vec<u8>, row: usize, is_text: bool) -> Result<(), Misfit> {
        let fields = Fields {
            pos: &self.pos,
            size: &self.size,
        };
        let data = fields.get(&self.source, row)?;
        let is_string = data.is_none_or(|data| std::str::from_utf8(data).is_ok());
        out.push(b'"');
        out.extend_from_slice(self.name.as_bytes());
        if is_text && is_string {
            out.extend_from_slice(b"\":");
            match data {
                Some(data) => push_string(out, data),
                None => out.extend_from_slice(b"null"),
            }
        } else {
            out.extend_from_slice(b"_base64\":");
            push_base64(out, data);
        }
        Ok(())
    }
}

/// Return an object a line, of all columns in their order.
pub fn object_lines(
    columns: &[Column],
    row_count: usize,
    is_text: bool,
) -> Result<Vec<u8>, Misfit> {
    let mut out = Vec::new();
    let mut first_header = 0; // of the row, in the column of headers, of which there is one
    for row in 0..row_count {
        out.push(b'{');
        for (place, column) in columns.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            match column {
                Column::Numbers(prefix, values) => {
                    out.extend_from_slice(prefix.as_bytes());
                    push_number(&mut out, *values.get(row).ok_or(Misfit)?);
                }
                Column::Choices(texts, values) => {
                    let choice = usize::try_from(*values.get(row).ok_or(Misfit)?);
                    let text = choice.ok().and_then(|choice| texts.get(choice));
                    out.extend_from_slice(text.ok_or(Misfit)?.as_bytes());
                }
                Column::Bytes(named) => named.push(&mut out, row, is_text)?,
                Column::Headers(prefix, counts, keys, values) => {
                    let count = usize::try_from(*counts.get(row).ok_or(Misfit)?);
                    let behind = first_header + count.map_err(|_| Misfit)?;
                    out.extend_from_slice(prefix.as_bytes());
                    out.push(b'[');
                    for header in first_header..behind {
                        out.extend_from_slice(if header > first_header { b",{" } else { b"{" });
                        keys.push(&mut out, header, is_text)?;
                        out.push(b',');
                        values.push(&mut out, header, is_text)?;
                        out.push(b'}');
                    }
                    out.push(b']');
                    first_header = behind;
                }
            }
        }
        out.extend_from_slice(b"}\n");
    }
    Ok(out)
}

fn push_base64(out: &mut Vec<u8>, data: Option<&[u8]>) {
    let Some(data) = data else {
        return out.extend_from_slice(b"null");
    };
    out.push(b'"');
    let start = out.len();
    out.resize(start + data.len().div_ceil(3) * 4, 0);
    let size = STANDARD
        .encode_slice(data, &mut out[start..])
        .unwrap_or_default();
    out.truncate(start + size);
    out.push(b'"');
}

/// Append a JSON string, null, or what stands for bytes that are not UTF-8.
fn push_text(out: &mut Vec<u8>, data: Option<&[u8]>) {
    let Some(data) = data else {
        return out.extend_from_slice(b"null");
    };
    if std::str::from_utf8(data).is_err() {
        out.extend_from_slice(b"{\"base64\":");
        push_base64(out, Some(data));
        out.push(b'}');
        return;
    }
    push_string(out, data);
}

/// Append valid UTF-8 as a JSON string.
fn push_string(out: &mut Vec<u8>, data: &[u8]) {
    out.push(b'"');
    let mut start = 0;
    for (place, &byte) in data.iter().enumerate() {
        if !NEEDS_ESCAPE[usize::from(byte)] {
            continue;
        }
        out.extend_from_slice(&data[start..place]);
        start = place + 1;
        push_escape(out, byte);
    }
    out.extend_from_slice(&data[start..]);
    out.push(b'"');
}

const NEEDS_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short: &[u8] = match byte {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        0x0c => b"\\f",
        0x08 => b"\\b",
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(short);
}
