//! The records of many batches as columns: the native `decode_records` of `storage/kernels`.

use crate::Odd;
use crate::batch::{HEADER_BYTES, Header, LOG_APPEND_TIME_MASK};
use crate::bodies::Bodies;
use crate::lines::{MAX_BASE_OFFSET, record_sequence};
use crate::records::{Field, take_record};

const RECORD_COLUMNS: usize = 9;
const HEADER_COLUMNS: usize = 5;
const MIN_RECORD_BYTES: i64 = 7;

/// Columns of 64-bit integers, as the bytes of numpy arrays.
struct Table<const N: usize> {
    row_count: i64,
    columns: [Vec<u8>; N],
}

impl<const N: usize> Table<N> {
    fn new() -> Self {
        Table {
            row_count: 0,
            columns: std::array::from_fn(|_| Vec::new()),
        }
    }

    fn push(&mut self, row: [i64; N]) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.extend_from_slice(&value.to_ne_bytes());
        }
        self.row_count += 1;
    }

    fn truncate(&mut self, row_count: i64) {
        self.row_count = row_count;
        for column in &mut self.columns {
            column.truncate(row_count as usize * size_of::<i64>());
        }
    }
}

/// What was decoded, in the order of `RecordTable`.
pub struct Decoded {
    pub source: Option<Vec<u8>>, // bodies that were decompressed, one behind the other
    pub is_whole: Vec<u8>,
    records: Table<RECORD_COLUMNS>,
    headers: Table<HEADER_COLUMNS>,
}

impl Decoded {
    pub fn columns(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.records.columns.iter().chain(&self.headers.columns)
    }

    /// Add the records of a body, which begins at `body_pos` of the source.
    fn push(
        &mut self,
        batch_row: i64,
        header: &Header,
        body: &[u8],
        body_pos: i64,
    ) -> Result<(), Odd> {
        let count = i64::from(header.records_count);
        if count > 0 && count * MIN_RECORD_BYTES > body.len() as i64
            || header.base_offset > MAX_BASE_OFFSET
        {
            return Err(Odd);
        }
        let mut rest = body;
        for _ in 0..count {
            let record = take_record(&mut rest)?;
            let record_row = self.records.row_count;
            let at = |field: Field| {
                let (pos, size) = place(body, body_pos, field.bytes);
                (pos, if field.is_null { -1 } else { size })
            };
            let (key_pos, key_bytes) = at(record.key);
            let (value_pos, value_bytes) = at(record.value);
            let timestamp_ms = if header.has(LOG_APPEND_TIME_MASK) {
                header.max_timestamp_ms
            } else {
                header
                    .base_timestamp_ms
                    .wrapping_add(record.timestamp_delta_ms)
            };
            self.records.push([
                batch_row,
                header.base_offset + i64::from(record.offset_delta),
                timestamp_ms,
                record_sequence(header, record.offset_delta),
                key_pos,
                key_bytes,
                value_pos,
                value_bytes,
                record.headers_count as i64,
            ]);
            for (name, value) in record.headers() {
                let (name_pos, name_bytes) = place(body, body_pos, name);
                let (value_pos, value_bytes) = at(value);
                self.headers
                    .push([record_row, name_pos, name_bytes, value_pos, value_bytes]);
            }
        }
        if count > 0 && !rest.is_empty() {
            Err(Odd)
        } else {
            Ok(())
        }
    }
}

/// Where a part of the body lies, and its size.
fn place(body: &[u8], body_pos: i64, part: &[u8]) -> (i64, i64) {
    (
        body_pos + (part.as_ptr().addr() - body.as_ptr().addr()) as i64,
        part.len() as i64,
    )
}

/// Decode the batches that begin at `starts` of `buf`, which is byte `buf_pos` of the caller's.
///
/// If `is_compressed`, all bodies go into a source of their own, and the last batch taken is the one
/// that makes it `max_source_bytes` or more. Batches that are odd are not whole and have no records.
pub fn decode(
    buf: &[u8],
    buf_pos: i64,
    starts: impl Iterator<Item = usize>,
    bodies: &mut Bodies,
    is_compressed: bool,
    max_source_bytes: usize,
) -> Decoded {
    let mut decoded = Decoded {
        source: is_compressed.then(Vec::new),
        is_whole: Vec::new(),
        records: Table::new(),
        headers: Table::new(),
    };
    for (row, start) in starts.enumerate() {
        let (records, headers) = (decoded.records.row_count, decoded.headers.row_count);
        let added = decode_batch(&mut decoded, row as i64, buf, buf_pos, start, bodies);
        if added.is_err() {
            decoded.records.truncate(records);
            decoded.headers.truncate(headers);
        }
        decoded.is_whole.push(u8::from(added.is_ok()));
        if decoded
            .source
            .as_ref()
            .is_some_and(|source| source.len() >= max_source_bytes)
        {
            break;
        }
    }
    decoded
}

fn decode_batch(
    decoded: &mut Decoded,
    row: i64,
    buf: &[u8],
    buf_pos: i64,
    start: usize,
    bodies: &mut Bodies,
) -> Result<(), Odd> {
    let header = buf.get(start..).and_then(Header::parse).ok_or(Odd)?;
    let batch = buf.get(start..start + header.batch_bytes).ok_or(Odd)?;
    let mut body = &batch[HEADER_BYTES..];
    let mut body_pos = buf_pos + (start + HEADER_BYTES) as i64;
    if let Some(source) = &mut decoded.source {
        if header.records_count == 0 {
            body = &[]; // nobody looks at it
        } else if header.codec() != 0 {
            body = bodies.decompress(header.codec(), body)?;
        }
        body_pos = source.len() as i64;
        source.extend_from_slice(body);
    }
    decoded.push(row, &header, body, body_pos)
}
