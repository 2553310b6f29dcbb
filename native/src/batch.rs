//! Batches of magic 2: their headers, what a healthy one keeps, and the walk from one to the next.
//!
//! The rules are those of `storage/kernels/pure.py`, which is their definition. Nothing here says
//! what is wrong with a batch: the walk ends before it, and the definition looks at it.

use crc_fast::{CrcAlgorithm, checksum};

use crate::bodies::CODEC_NAMES;

pub const HEADER_BYTES: usize = 61;
pub const CODEC_MASK: i16 = 0x07;
pub const LOG_APPEND_TIME_MASK: i16 = 0x08;
pub const TRANSACTIONAL_MASK: i16 = 0x10;
pub const CONTROL_MASK: i16 = 0x20;
pub const DELETE_HORIZON_MASK: i16 = 0x40;

pub const LOG_OVERHEAD_BYTES: usize = 12;
const MIN_BATCH_LENGTH: i32 = 49;
pub const CRC_START: usize = 21;
pub const MAGIC_V2: u8 = 2;
const MAX_CODEC: i16 = CODEC_NAMES.len() as i16 - 1;
const KNOWN_ATTRIBUTES: i16 = 0x7f;

/// The fields of a header, but the magic, which is 2.
pub struct Header {
    pub base_offset: i64,
    pub batch_bytes: usize,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records_count: i32,
}

fn part<const N: usize>(buf: &[u8; HEADER_BYTES], pos: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&buf[pos..pos + N]);
    bytes
}

impl Header {
    /// Read the header at the start of `buf`; None where fewer bytes are left, the magic is another
    /// or the length is below the least.
    pub fn parse(buf: &[u8]) -> Option<Header> {
        let buf: &[u8; HEADER_BYTES] = buf.first_chunk()?;
        let length = i32::from_be_bytes(part(buf, 8));
        if buf[16] != MAGIC_V2 || length < MIN_BATCH_LENGTH {
            return None;
        }
        Some(Header {
            base_offset: i64::from_be_bytes(part(buf, 0)),
            batch_bytes: length as usize + LOG_OVERHEAD_BYTES,
            leader_epoch: i32::from_be_bytes(part(buf, 12)),
            crc: u32::from_be_bytes(part(buf, 17)),
            attributes: i16::from_be_bytes(part(buf, 21)),
            last_offset_delta: i32::from_be_bytes(part(buf, 23)),
            base_timestamp_ms: i64::from_be_bytes(part(buf, 27)),
            max_timestamp_ms: i64::from_be_bytes(part(buf, 35)),
            producer_id: i64::from_be_bytes(part(buf, 43)),
            producer_epoch: i16::from_be_bytes(part(buf, 51)),
            base_sequence: i32::from_be_bytes(part(buf, 53)),
            records_count: i32::from_be_bytes(part(buf, 57)),
        })
    }

    /// The offset of the last record as it was written. Of a healthy batch: it cannot overflow.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .wrapping_add(i64::from(self.last_offset_delta))
    }

    pub fn has(&self, mask: i16) -> bool {
        self.attributes & mask != 0
    }

    pub fn codec(&self) -> i16 {
        self.attributes & CODEC_MASK
    }
}

/// Whether the checksum of a whole batch, which `batch` is, holds.
pub fn has_right_checksum(header: &Header, batch: &[u8]) -> bool {
    checksum(CrcAlgorithm::Crc32Iscsi, &batch[CRC_START..]) == u64::from(header.crc)
}

/// What the batches before say about the next one: `Neighbours` of the definition.
#[derive(Clone, Copy)]
pub struct Neighbours {
    pub min_offset: i64,
    pub max_offset: i64,
    pub last_offset: i64,
    pub leader_epoch: i32,
}

impl Neighbours {
    /// Tell whether a batch keeps all rules but its checksum; if so it is the neighbour from now on.
    pub fn accept(&mut self, header: &Header) -> bool {
        let delta = header.last_offset_delta;
        let is_healthy = delta >= 0
            && header.base_offset > self.last_offset
            && header.base_offset >= self.min_offset
            && header.base_offset <= self.max_offset.saturating_sub(i64::from(delta))
            && header.records_count >= 0
            && i64::from(header.records_count) <= i64::from(delta) + 1
            && header.codec() <= MAX_CODEC
            && header.attributes & !KNOWN_ATTRIBUTES == 0
            && (header.leader_epoch == -1 || header.leader_epoch >= self.leader_epoch);
        if is_healthy {
            self.leader_epoch = self.leader_epoch.max(header.leader_epoch);
            self.last_offset = header.last_offset();
        }
        is_healthy
    }
}
