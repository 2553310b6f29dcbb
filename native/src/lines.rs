//! kafka-dump-log's lines (`eoctl/dump/log_text.py` is their definition).

use crate::Odd;
use crate::batch::{
    CONTROL_MASK, DELETE_HORIZON_MASK, Header, LOG_APPEND_TIME_MASK, TRANSACTIONAL_MASK,
};
use crate::bodies::CODEC_NAMES;
use crate::java_utf8::push_text;
use crate::records::{Record, take_record};

const NO_SEQUENCE: i32 = -1;
pub const MAX_BASE_OFFSET: i64 = 1 << 62; // beyond it a record's offset could overflow

const ABORT: [u8; 2] = [0, 0];
const COMMIT: [u8; 2] = [0, 1];

/// What record lines show.
#[derive(Clone, Copy)]
pub struct LineOptions {
    pub print_data: bool,
    pub skip_record_metadata: bool,
}

/// Follows the offsets of records as they are printed.
#[derive(Default)]
pub struct OffsetFollower {
    pub first_offset: Option<i64>,
    pub last_offset: i64,
    pub non_consecutive: Vec<(i64, i64)>,
}

impl OffsetFollower {
    /// Return what `go_back` needs to forget all that is followed from now on.
    pub fn mark(&self) -> (Option<i64>, i64, usize) {
        (
            self.first_offset,
            self.last_offset,
            self.non_consecutive.len(),
        )
    }

    pub fn go_back(&mut self, (first_offset, last_offset, pairs): (Option<i64>, i64, usize)) {
        (self.first_offset, self.last_offset) = (first_offset, last_offset);
        self.non_consecutive.truncate(pairs);
    }

    fn follow(&mut self, offset: i64) {
        if self.first_offset.is_none() {
            self.first_offset = Some(offset);
        } else if offset != self.last_offset.wrapping_add(1) {
            self.non_consecutive.push((self.last_offset, offset));
        }
        self.last_offset = offset;
    }
}

fn push_number(out: &mut Vec<u8>, label: &[u8], value: impl itoa::Integer) {
    out.extend_from_slice(label);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn timestamp_type(header: &Header) -> &'static [u8] {
    if header.has(LOG_APPEND_TIME_MASK) {
        b" LogAppendTime: "
    } else {
        b" CreateTime: "
    }
}

/// Add to a sequence as a producer does: behind the largest comes 0.
fn add_to_sequence(base: i32, delta: i32) -> i64 {
    if base == NO_SEQUENCE {
        return i64::from(NO_SEQUENCE);
    }
    let last = i64::from(base) + i64::from(delta);
    if last > i64::from(i32::MAX) {
        last - (1 << 31)
    } else {
        last
    }
}

/// The sequence number of a record; -1 where its batch has none.
pub fn record_sequence(header: &Header, offset_delta: i32) -> i64 {
    if header.base_sequence < 0 {
        return i64::from(NO_SEQUENCE);
    }
    add_to_sequence(header.base_sequence, offset_delta)
}

/// Append the line of a healthy batch whose checksum is right.
pub fn push_batch_line(out: &mut Vec<u8>, header: &Header, pos: u64) {
    push_number(out, b"baseOffset: ", header.base_offset);
    push_number(out, b" lastOffset: ", header.last_offset());
    push_number(out, b" count: ", header.records_count);
    push_number(out, b" baseSequence: ", header.base_sequence);
    push_number(
        out,
        b" lastSequence: ",
        add_to_sequence(header.base_sequence, header.last_offset_delta),
    );
    push_number(out, b" producerId: ", header.producer_id);
    push_number(out, b" producerEpoch: ", header.producer_epoch);
    push_number(out, b" partitionLeaderEpoch: ", header.leader_epoch);
    out.extend_from_slice(
        match (header.has(TRANSACTIONAL_MASK), header.has(CONTROL_MASK)) {
            (false, false) => {
                b" isTransactional: false isControl: false deleteHorizonMs: OptionalLong"
            }
            (false, true) => {
                b" isTransactional: false isControl: true deleteHorizonMs: OptionalLong"
            }
            (true, false) => {
                b" isTransactional: true isControl: false deleteHorizonMs: OptionalLong"
            }
            (true, true) => b" isTransactional: true isControl: true deleteHorizonMs: OptionalLong",
        },
    );
    if header.has(DELETE_HORIZON_MASK) {
        push_number(out, b"[", header.base_timestamp_ms);
        push_number(out, b"] position: ", pos);
    } else {
        push_number(out, b".empty position: ", pos);
    }
    push_number(out, timestamp_type(header), header.max_timestamp_ms);
    push_number(out, b" size: ", header.batch_bytes);
    out.extend_from_slice(b" magic: 2 compresscodec: ");
    out.extend_from_slice(CODEC_NAMES[header.codec() as usize]);
    push_number(out, b" crc: ", header.crc);
    out.extend_from_slice(b" isvalid: true\n");
}

/// The records of a batch, whose lines are appended some at a time.
pub struct RecordLines<'a> {
    header: &'a Header,
    body: &'a [u8],
    left_count: i32,
    options: LineOptions,
}

impl<'a> RecordLines<'a> {
    /// `body` has the records, decompressed; of a batch without records it is not looked at.
    pub fn new(header: &'a Header, body: &'a [u8], options: LineOptions) -> Result<Self, Odd> {
        if header.base_offset > MAX_BASE_OFFSET {
            return Err(Odd);
        }
        let body = if header.records_count == 0 { &[] } else { body };
        Ok(RecordLines {
            header,
            body,
            left_count: header.records_count,
            options,
        })
    }

    /// Look at all of them; if none is odd, `push` finds none either.
    pub fn check(&self) -> Result<(), Odd> {
        let mut body = self.body;
        for _ in 0..self.left_count {
            let record = take_record(&mut body)?;
            if self.header.has(CONTROL_MASK) {
                end_marker(&record)?;
            }
        }
        if body.is_empty() { Ok(()) } else { Err(Odd) }
    }

    /// Append the lines of the next `max_count` records; tells whether some are left.
    ///
    /// If one is odd, `out` and `follower` are as they happen to be.
    pub fn push(
        &mut self,
        out: &mut Vec<u8>,
        follower: &mut OffsetFollower,
        max_count: i32,
    ) -> Result<bool, Odd> {
        let count = self.left_count.min(max_count);
        for _ in 0..count {
            let record = take_record(&mut self.body)?;
            let offset = self.header.base_offset + i64::from(record.offset_delta);
            if !self.options.skip_record_metadata {
                self.push_metadata(out, &record, offset);
            }
            if self.header.has(CONTROL_MASK) {
                let (name, epoch) = end_marker(&record)?;
                if !self.options.skip_record_metadata {
                    out.extend_from_slice(name);
                    push_number(out, b" coordinatorEpoch: ", epoch);
                }
            } else if self.options.print_data {
                push_contents(out, &record, self.options.skip_record_metadata);
            }
            out.push(b'\n');
            follower.follow(offset);
        }
        self.left_count -= count;
        if self.left_count == 0 && !self.body.is_empty() {
            return Err(Odd);
        }
        Ok(self.left_count > 0)
    }

    #[inline(always)]
    fn push_metadata(&self, out: &mut Vec<u8>, record: &Record, offset: i64) {
        let header = self.header;
        let timestamp_ms = if header.has(LOG_APPEND_TIME_MASK) {
            header.max_timestamp_ms
        } else {
            header
                .base_timestamp_ms
                .wrapping_add(record.timestamp_delta_ms)
        };
        push_number(out, b"| offset: ", offset);
        push_number(out, timestamp_type(header), timestamp_ms);
        push_number(out, b" keySize: ", size_of(record.key.get()));
        push_number(out, b" valueSize: ", size_of(record.value.get()));
        push_number(
            out,
            b" sequence: ",
            record_sequence(header, record.offset_delta),
        );
        out.extend_from_slice(b" headerKeys: [");
        for (place, (name, _)) in record.headers().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            push_text(out, name);
        }
        out.push(b']');
    }
}

fn size_of(field: Option<&[u8]>) -> i64 {
    field.map_or(-1, |bytes| bytes.len() as i64)
}

fn push_contents(out: &mut Vec<u8>, record: &Record, is_alone: bool) {
    let (key, value) = (record.key.get(), record.value.get());
    if is_alone && (key.is_some() || value.is_some()) {
        out.push(b'|');
    }
    if let Some(key) = key {
        out.extend_from_slice(b" key: ");
        push_text(out, key);
    }
    if let Some(value) = value {
        out.extend_from_slice(b" payload: ");
        push_text(out, value);
    }
}

/// Read a COMMIT or ABORT marker; any other control record is for the definition.
fn end_marker(record: &Record) -> Result<(&'static [u8], i32), Odd> {
    let (&[version, _, high, low], _) = record
        .key
        .get()
        .and_then(|key| key.split_first_chunk::<4>())
        .ok_or(Odd)?;
    let (&[value_version, _, a, b, c, d], _) = record
        .value
        .get()
        .and_then(|value| value.split_first_chunk::<6>())
        .ok_or(Odd)?;
    if version >= 0x80 || value_version >= 0x80 {
        return Err(Odd);
    }
    let name: &[u8] = match [high, low] {
        COMMIT => b" endTxnMarker: COMMIT",
        ABORT => b" endTxnMarker: ABORT",
        _ => return Err(Odd),
    };
    Ok((name, i32::from_be_bytes([a, b, c, d])))
}
