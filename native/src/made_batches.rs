//! Batches that are written: records of values put together (`storage/writing/batch_run.py`), and
//! batches of one log stamped for another (`eoctl/clients/copying/copied_batch.py`).

use crc_fast::{CrcAlgorithm, checksum};

use crate::batch::{CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2, TRANSACTIONAL_MASK};

const CRC_POS: usize = 17;
const ATTRIBUTES_POS: usize = 21;
const PRODUCER_POS: usize = 43;
const NULL_LENGTH: u8 = 1; // -1 as a varint

/// What a producer and a leader write into the header of a batch, the first of several.
#[derive(Clone, Copy)]
pub struct Stamp {
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

impl Stamp {
    fn go_on(&mut self, records_count: u32) {
        self.base_offset += i64::from(records_count);
        // From 2^31 - 1 to 0, as `increment_sequence`.
        let sequence = i64::from(self.base_sequence) + i64::from(records_count);
        self.base_sequence = (sequence & i64::from(i32::MAX)) as i32;
    }

    fn write(&self, batch: &mut [u8]) {
        batch[..8].copy_from_slice(&self.base_offset.to_be_bytes());
        batch[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        batch[PRODUCER_POS..51].copy_from_slice(&self.producer_id.to_be_bytes());
        batch[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        let crc = checksum(CrcAlgorithm::Crc32Iscsi, &batch[CRC_START..]) as u32;
        batch[CRC_POS..ATTRIBUTES_POS].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Stamp batches that lie one behind the other; they are in no transaction any more.
///
/// Returns None where sizes or counts are not those of the batches.
pub fn stamp(data: &mut [u8], batch_bytes: &[i64], mut stamp: Stamp) -> Option<()> {
    let mut left = data;
    for &size in batch_bytes {
        let (batch, behind) = left.split_at_mut_checked(usize::try_from(size).ok()?)?;
        let header: &mut [u8; HEADER_BYTES] = batch.first_chunk_mut()?;
        let attributes = i16::from_be_bytes([header[ATTRIBUTES_POS], header[ATTRIBUTES_POS + 1]]);
        let count = u32::from_be_bytes([header[57], header[58], header[59], header[60]]);
        header[ATTRIBUTES_POS..][..2]
            .copy_from_slice(&(attributes & !TRANSACTIONAL_MASK).to_be_bytes());
        stamp.write(batch);
        stamp.go_on(count);
        left = behind;
    }
    left.is_empty().then_some(())
}

/// Cuts batches from values as `BatchBuilder` does.
pub struct Cut {
    max_bytes: usize,
    max_records: usize,
    bytes: usize,
    count: usize,
}

impl Cut {
    pub fn new(max_bytes: usize, max_records: usize) -> Cut {
        Cut {
            max_bytes,
            max_records,
            bytes: HEADER_BYTES,
            count: 0,
        }
    }

    /// Take the next value; if it begins a batch, return bytes and records of the one before it.
    pub fn take(&mut self, size: usize) -> Option<(usize, usize)> {
        let mut full = None;
        // A record that is too large is a batch of its own.
        let has_room = self.bytes + record_bytes(size, self.count) <= self.max_bytes
            && self.count < self.max_records;
        if self.count > 0 && !has_room {
            full = Some((self.bytes, self.count));
            (self.bytes, self.count) = (HEADER_BYTES, 0);
        }
        self.bytes += record_bytes(size, self.count);
        self.count += 1;
        full
    }
}

fn body_bytes(size: usize, offset_delta: usize) -> usize {
    // Attributes, timestamp delta, key, headers: a byte each.
    4 + varint_bytes(offset_delta) + varint_bytes(size) + size
}

fn record_bytes(size: usize, offset_delta: usize) -> usize {
    let body = body_bytes(size, offset_delta);
    varint_bytes(body) + body
}

/// How long a number that is not negative is as a zigzag varint.
fn varint_bytes(number: usize) -> usize {
    (usize::BITS - (number << 1 | 1).leading_zeros()).div_ceil(7) as usize
}

/// Fills a place whose size is known.
struct Writer<'a> {
    left: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (here, behind) = std::mem::take(&mut self.left).split_at_mut_checked(bytes.len())?;
        here.copy_from_slice(bytes);
        self.left = behind;
        Some(())
    }

    fn put_varint(&mut self, number: usize) -> Option<()> {
        let mut zigzag = number << 1;
        while zigzag >= 0x80 {
            self.put(&[zigzag as u8 | 0x80])?;
            zigzag >>= 7;
        }
        self.put(&[zigzag as u8])
    }
}

/// Write batches of values; `data` is as large as they are, and `stamp` is that of the first.
///
/// Returns None where it is not.
pub fn encode<'a>(
    data: &mut [u8],
    batches: &[(usize, usize)],
    mut values: impl Iterator<Item = &'a [u8]>,
    timestamp_ms: i64,
    is_transactional: bool,
    mut stamp: Stamp,
) -> Option<()> {
    let mut left = data;
    for &(bytes, count) in batches {
        let (batch, behind) = left.split_at_mut_checked(bytes)?;
        let (header, body) = batch.split_first_chunk_mut::<HEADER_BYTES>()?;
        let attributes = if is_transactional {
            TRANSACTIONAL_MASK
        } else {
            0
        };
        let last_delta = i32::try_from(count).ok()? - 1;
        header[8..12].copy_from_slice(
            &i32::try_from(bytes - LOG_OVERHEAD_BYTES)
                .ok()?
                .to_be_bytes(),
        );
        header[16] = MAGIC_V2;
        header[21..23].copy_from_slice(&attributes.to_be_bytes());
        header[23..27].copy_from_slice(&last_delta.to_be_bytes());
        header[27..35].copy_from_slice(&timestamp_ms.to_be_bytes());
        header[35..43].copy_from_slice(&timestamp_ms.to_be_bytes());
        header[57..61].copy_from_slice(&(last_delta + 1).to_be_bytes());
        let mut writer = Writer { left: body };
        for (offset_delta, value) in values.by_ref().take(count).enumerate() {
            writer.put_varint(body_bytes(value.len(), offset_delta))?;
            writer.put(&[0, 0])?; // attributes, timestamp delta
            writer.put_varint(offset_delta)?;
            writer.put(&[NULL_LENGTH])?;
            writer.put_varint(value.len())?;
            writer.put(value)?;
            writer.put(&[0])?; // headers
        }
        if !writer.left.is_empty() {
            return None;
        }
        stamp.write(batch);
        stamp.go_on(count as u32);
        left = behind;
    }
    left.is_empty().then_some(())
}
