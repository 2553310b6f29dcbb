//! Text as Java decodes it: each malformed piece becomes one U+FFFD (`storage/formats/java_text.py`).

use std::str::from_utf8;

const REPLACEMENT: [u8; 3] = [0xef, 0xbf, 0xbd]; // U+FFFD
const WRITTEN_BYTES: usize = 4; // at once; what is too many is written over
const PAGE_BYTES: usize = 1024;
const STEP_BYTES: usize = 8; // that are looked at together
const STEP_TEXT_BYTES: usize = STEP_BYTES * REPLACEMENT.len() + WRITTEN_BYTES; // and a sequence

/// Append bytes as the text that Kafka's own tools make of them.
pub fn push_text(out: &mut Vec<u8>, data: &[u8]) {
    match from_utf8(data) {
        Ok(_) => out.extend_from_slice(data),
        Err(error) => {
            let (valid, rest) = data.split_at(error.valid_up_to());
            out.extend_from_slice(valid);
            push_malformed(out, rest);
        }
    }
}

/// Most of what is no text has a malformed piece every few bytes, nearly all of them of one byte: up
/// to a byte that a continuation follows, eight bytes at once are written without a branch.
fn push_malformed(out: &mut Vec<u8>, data: &[u8]) {
    let mut page = [0; PAGE_BYTES];
    let mut pos = 0;
    while pos < data.len() {
        let mut end = 0;
        while end <= PAGE_BYTES - STEP_TEXT_BYTES && pos < data.len() {
            let room: &mut [u8; STEP_TEXT_BYTES] =
                page[end..].first_chunk_mut().expect("the page has room");
            let mut size = 0;
            if let Some(bytes) = data[pos..].first_chunk() {
                let singles = singles_before_sequence(bytes);
                size = write_singles(room, bytes, singles);
                pos += singles;
                if singles == STEP_BYTES {
                    end += size;
                    continue;
                }
            }
            let (piece_bytes, text, text_bytes) = piece(&data[pos..]);
            room[size..size + WRITTEN_BYTES].copy_from_slice(&text);
            end += size + text_bytes;
            pos += piece_bytes;
        }
        out.extend_from_slice(&page[..end]);
    }
}

/// How many of the first eight bytes come before one that may begin a sequence.
fn singles_before_sequence(bytes: &[u8; STEP_BYTES + 1]) -> usize {
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let [a, b, c, d, e, f, g, h, behind] = *bytes;
    let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let next = u64::from_le_bytes([b, c, d, e, f, g, h, behind]);
    // In the highest bit of each byte: is it 11xxxxxx, and the next one 10xxxxxx?
    let is_sequence = word & (word << 1) & next & !(next << 1) & HIGH_BITS;
    is_sequence.trailing_zeros() as usize / 8
}

/// Write the first `singles` bytes, each by itself; returns how many bytes of `room` count.
fn write_singles(
    room: &mut [u8; STEP_TEXT_BYTES],
    bytes: &[u8; STEP_BYTES + 1],
    singles: usize,
) -> usize {
    let mut size = 0;
    for (place, &byte) in bytes[..STEP_BYTES].iter().enumerate() {
        let (text, text_bytes) = SINGLE[usize::from(byte)];
        room[size..size + WRITTEN_BYTES].copy_from_slice(&text);
        size += usize::from(text_bytes) * usize::from(place < singles);
    }
    size
}

/// How long the piece at the start of `data` is, what stands for it, and how many bytes of that count.
fn piece(data: &[u8]) -> (usize, [u8; WRITTEN_BYTES], usize) {
    let next = data.get(1).copied().unwrap_or(0);
    if data[0] >= 0xc2 && next & 0xc0 == 0x80 {
        let (piece_bytes, is_valid) = sequence(data);
        if is_valid {
            return (piece_bytes, first_bytes(data), piece_bytes);
        }
        return (piece_bytes, SINGLE[0xff].0, REPLACEMENT.len());
    }
    let (text, text_bytes) = SINGLE[usize::from(data[0])];
    (1, text, usize::from(text_bytes))
}

fn first_bytes(data: &[u8]) -> [u8; WRITTEN_BYTES] {
    data.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; WRITTEN_BYTES];
        bytes[..data.len()].copy_from_slice(data);
        bytes
    })
}

/// What stands for a byte by itself, and how many bytes of it count.
const SINGLE: [([u8; WRITTEN_BYTES], u8); 256] = {
    let [a, b, c] = REPLACEMENT;
    let mut table = [([a, b, c, 0], 3); 256];
    let mut byte = 0;
    while byte < 0x80 {
        table[byte] = ([byte as u8, 0, 0, 0], 1);
        byte += 1;
    }
    table
};

/// How long the piece at the start of `data` is, a first byte and a continuation, and is it valid?
///
/// Java takes an encoded surrogate, whole or not, for one piece. Else a malformed piece is as long as
/// what could have begun a character (Unicode 3.9, "maximal subpart").
fn sequence(data: &[u8]) -> (usize, bool) {
    let is_continuation = |place: usize| data.get(place).is_some_and(|byte| byte & 0xc0 == 0x80);
    match (data[0], data[1]) {
        (0xc2..=0xdf, _) => (2, true),
        (0xed, 0xa0..) => (if is_continuation(2) { 3 } else { 2 }, false),
        (0xe0, 0xa0..) | (0xe1..=0xef, _) => {
            if is_continuation(2) {
                (3, true)
            } else {
                (2, false)
            }
        }
        (0xf0, 0x90..) | (0xf1..=0xf3, _) | (0xf4, ..=0x8f) => {
            match (is_continuation(2), is_continuation(3)) {
                (true, true) => (4, true),
                (true, false) => (3, false),
                _ => (2, false),
            }
        }
        _ => (1, false),
    }
}
