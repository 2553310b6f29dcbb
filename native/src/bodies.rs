//! Bodies of compressed batches, framed as Kafka frames them (`storage/formats/compression.py`).
//!
//! Only what Kafka's own producers write is taken; anything else, legal or not, is odd: the
//! definition reads it again and knows what to say of it.

use flate2::{Crc, Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size};

use crate::Odd;

/// Of the codecs that `Bodies` decompresses, by their ids.
pub const CODEC_NAMES: [&[u8]; 5] = [b"none", b"gzip", b"snappy", b"lz4", b"zstd"];

const MAX_PLAIN_BYTES: usize = 64 << 20;
const MIN_PLAIN_BYTES: usize = 64 << 10;

const GZIP_HEADER: [u8; 9] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0]; // and a byte for the system
const GZIP_HEADER_BYTES: usize = 10;
const GZIP_TRAILER_BYTES: usize = 8;

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;

const LZ4_HEADER: [u8; 5] = [0x04, 0x22, 0x4d, 0x18, 0x60]; // independent blocks, nothing optional
const LZ4_HEADER_BYTES: usize = 7;
// The descriptor's sizes of blocks, each with the checksum of a header of 0x60 and that descriptor.
const LZ4_BLOCK_BYTES: [(u8, u8, usize); 4] = [
    (0x40, 0x82, 64 << 10),
    (0x50, 0xfb, 256 << 10),
    (0x60, 0x51, 1 << 20),
    (0x70, 0x73, 4 << 20),
];
const LZ4_STORED: u32 = 1 << 31;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ZSTD_SINGLE_SEGMENT: u8 = 0x20;
const ZSTD_MAX_WINDOW: u8 = 17 << 3; // 128 MiB, as the exponent and mantissa of the frame header

/// Decompresses one body after the other into a buffer of its own.
pub struct Bodies {
    plain: Vec<u8>, // as long as it ever had to be: what is not used is left over
    max_bytes: usize,
    inflater: Decompress,
    unsnapper: snap::raw::Decoder,
    unzstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Bodies {
    pub fn new(max_batch_bytes: usize) -> Bodies {
        Bodies {
            plain: Vec::new(),
            max_bytes: max_batch_bytes.min(MAX_PLAIN_BYTES),
            inflater: Decompress::new(false),
            unsnapper: snap::raw::Decoder::new(),
            unzstd: None,
        }
    }

    /// Return the records of a compressed body.
    pub fn decompress(&mut self, codec: i16, body: &[u8]) -> Result<&[u8], Odd> {
        let size = match codec {
            1 => self.gunzip(body),
            2 => self.unsnap(body),
            3 => self.unlz4(body),
            4 => self.unzstd(body),
            _ => Err(Odd),
        }?;
        Ok(&self.plain[..size])
    }

    /// Make room for so many bytes in all.
    fn reserve(&mut self, size: usize) -> Result<(), Odd> {
        if size > self.max_bytes {
            return Err(Odd);
        }
        if size > self.plain.len() {
            self.plain.resize(size.max(MIN_PLAIN_BYTES), 0);
        }
        Ok(())
    }

    /// Double the room.
    fn grow(&mut self) -> Result<(), Odd> {
        if self.plain.len() >= self.max_bytes {
            return Err(Odd);
        }
        self.reserve(
            (self.plain.len() * 2).clamp(MIN_PLAIN_BYTES.min(self.max_bytes), self.max_bytes),
        )
    }

    fn gunzip(&mut self, body: &[u8]) -> Result<usize, Odd> {
        if body.len() < GZIP_HEADER_BYTES + GZIP_TRAILER_BYTES
            || !body.starts_with(&GZIP_HEADER[..4])
        {
            return Err(Odd);
        }
        self.inflater.reset(false);
        let mut rest = &body[GZIP_HEADER_BYTES..];
        let mut size = 0;
        loop {
            if size == self.plain.len() {
                self.grow()?;
            }
            let (taken, given) = (self.inflater.total_in(), self.inflater.total_out());
            let status = self
                .inflater
                .decompress(rest, &mut self.plain[size..], FlushDecompress::None)
                .map_err(|_| Odd)?;
            let taken = (self.inflater.total_in() - taken) as usize;
            let given = (self.inflater.total_out() - given) as usize;
            rest = &rest[taken..];
            size += given;
            if status == Status::StreamEnd {
                break;
            }
            if taken == 0 && given == 0 && size < self.plain.len() {
                return Err(Odd);
            }
        }
        let trailer: &[u8; GZIP_TRAILER_BYTES] = rest.try_into().map_err(|_| Odd)?;
        let mut crc = Crc::new();
        crc.update(&self.plain[..size]);
        let expected = (u64::from(size as u32) << 32) | u64::from(crc.sum());
        if size > self.max_bytes || u64::from_le_bytes(*trailer) != expected {
            return Err(Odd);
        }
        Ok(size)
    }

    fn unsnap(&mut self, body: &[u8]) -> Result<usize, Odd> {
        if !body.starts_with(XERIAL_MAGIC) {
            return self.unsnap_block(body, 0);
        }
        let mut rest = body.get(XERIAL_HEADER_BYTES..).ok_or(Odd)?;
        let mut size = 0;
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Odd)?;
            let block = behind.get(..length).ok_or(Odd)?;
            size = self.unsnap_block(block, size)?;
            rest = &behind[length..];
        }
        if rest.is_empty() { Ok(size) } else { Err(Odd) }
    }

    /// Decompress a raw block behind `size` bytes; returns how many they are then.
    fn unsnap_block(&mut self, block: &[u8], size: usize) -> Result<usize, Odd> {
        let block_bytes = snap::raw::decompress_len(block).map_err(|_| Odd)?;
        let end = size.checked_add(block_bytes).ok_or(Odd)?;
        self.reserve(end)?;
        let given = self
            .unsnapper
            .decompress(block, &mut self.plain[size..end])
            .map_err(|_| Odd)?;
        if given == block_bytes {
            Ok(end)
        } else {
            Err(Odd)
        }
    }

    fn unlz4(&mut self, body: &[u8]) -> Result<usize, Odd> {
        let (header, mut rest) = body.split_first_chunk::<LZ4_HEADER_BYTES>().ok_or(Odd)?;
        let max_block_bytes = LZ4_BLOCK_BYTES
            .iter()
            .find(|(descriptor, sum, _)| header[5..] == [*descriptor, *sum])
            .map(|(_, _, bytes)| *bytes)
            .filter(|_| header.starts_with(&LZ4_HEADER))
            .ok_or(Odd)?;
        let mut size = 0;
        loop {
            let (mark, behind) = rest.split_first_chunk::<4>().ok_or(Odd)?;
            let mark = u32::from_le_bytes(*mark);
            let length = (mark & !LZ4_STORED) as usize;
            if length == 0 {
                return if behind.is_empty() {
                    Ok(size)
                } else {
                    Err(Odd)
                };
            }
            let block = behind
                .get(..length)
                .filter(|_| length <= max_block_bytes)
                .ok_or(Odd)?;
            rest = &behind[length..];
            if mark & LZ4_STORED != 0 {
                self.reserve(size + length)?;
                self.plain[size..size + length].copy_from_slice(block);
                size += length;
                continue;
            }
            let room = (size + max_block_bytes).min(self.max_bytes);
            self.reserve(room)?;
            size += lz4_flex::block::decompress_into(block, &mut self.plain[size..room])
                .map_err(|_| Odd)?;
        }
    }

    fn unzstd(&mut self, body: &[u8]) -> Result<usize, Odd> {
        let has_large_window = body.get(4..6).is_none_or(|header| {
            header[0] & ZSTD_SINGLE_SEGMENT == 0 && header[1] > ZSTD_MAX_WINDOW
        });
        let is_one_frame = find_frame_compressed_size(body).is_ok_and(|size| size == body.len());
        if !body.starts_with(&ZSTD_MAGIC) || has_large_window || !is_one_frame {
            return Err(Odd);
        }
        if let Ok(Some(size)) = get_frame_content_size(body) {
            self.reserve(usize::try_from(size).map_err(|_| Odd)?)?;
        }
        if self.plain.is_empty() {
            self.grow()?;
        }
        if self.unzstd.is_none() {
            self.unzstd = Some(zstd::bulk::Decompressor::new().map_err(|_| Odd)?);
        }
        loop {
            let room = self.plain.len().min(self.max_bytes);
            let unzstd = self.unzstd.as_mut().ok_or(Odd)?;
            match unzstd.decompress_to_buffer(body, &mut self.plain[..room]) {
                Ok(size) => return Ok(size),
                // The library does not say what was wrong but in words: too little room is tried.
                Err(_) => self.grow()?,
            }
        }
    }
}
