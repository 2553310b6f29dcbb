//! Text as Java decodes it: each malformed piece becomes one U+FFFD (`storage/formats/java_utf8.py`).

use std::str::from_utf8;

const REPLACEMENT: [u8; 3] = [0xef, 0xbf, 0xbd]; // U+FFFD
const WRITTEN_BYTES: usize = 4; // at once; what is too many is written over
const PAGE_BYTES: usize = 1024;

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

/// Most of what is no text has a malformed piece every few bytes, nearly all of them of one byte: a
/// byte that no continuation follows is written without a branch, and only the others are looked at.
fn push_malformed(out: &mut Vec<u8>, data: &[u8]) {
    let mut page = [0; PAGE_BYTES];
    let mut pos = 0;
    while pos < data.len() {
        let mut end = 0;
        while end <= PAGE_BYTES - WRITTEN_BYTES && pos < data.len() {
            let room: &mut [u8; WRITTEN_BYTES] =
                page[end..].first_chunk_mut().expect("the page has room");
            let byte = data[pos];
            let next = data.get(pos + 1).copied().unwrap_or(0);
            if byte >= 0xc2 && next & 0xc0 == 0x80 {
                let (piece_bytes, is_valid) = sequence(&data[pos..]);
                let piece = if is_valid {
                    &data[pos..pos + piece_bytes]
                } else {
                    &REPLACEMENT
                };
                room[..piece.len()].copy_from_slice(piece);
                end += piece.len();
                pos += piece_bytes;
                continue;
            }
            let (text, text_bytes) = SINGLE[usize::from(byte)];
            *room = text;
            end += usize::from(text_bytes);
            pos += 1;
        }
        out.extend_from_slice(&page[..end]);
    }
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
