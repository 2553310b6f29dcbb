//! Healthy batches as columns: those of one buffer (the native `scan_window` of `storage/kernels`),
//! and those of a log, without their bodies.

use crate::batch::{CONTROL_MASK, Header, Neighbours, has_right_checksum};

pub const COLUMN_COUNT: usize = 15;
const COLUMN_BYTES: [usize; COLUMN_COUNT] = [8, 8, 8, 8, 4, 1, 2, 8, 8, 8, 2, 4, 4, 4, 1];

/// Columns in the order of `HeaderTable`, each as the bytes of a numpy array.
#[derive(Default)]
pub struct Columns {
    pub row_count: usize,
    pub bytes: [Vec<u8>; COLUMN_COUNT],
}

impl Columns {
    fn with_capacity(row_count: usize) -> Columns {
        Columns {
            row_count: 0,
            bytes: COLUMN_BYTES.map(|size| Vec::with_capacity(size * row_count)),
        }
    }

    fn push(&mut self, header: &Header, pos: i64) {
        fn add<const N: usize>(column: &mut Vec<u8>, value: [u8; N]) {
            column.extend_from_slice(&value);
        }
        let [
            pos_column,
            batch_bytes,
            base_offset,
            last_offset,
            leader_epoch,
            magic,
            attributes,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            records_count,
            crc,
            crc_ok,
        ] = &mut self.bytes;
        add(pos_column, pos.to_ne_bytes());
        add(batch_bytes, (header.batch_bytes as i64).to_ne_bytes());
        add(base_offset, header.base_offset.to_ne_bytes());
        add(last_offset, header.last_offset().to_ne_bytes());
        add(leader_epoch, header.leader_epoch.to_ne_bytes());
        add(magic, [2]);
        add(attributes, header.attributes.to_ne_bytes());
        add(base_timestamp_ms, header.base_timestamp_ms.to_ne_bytes());
        add(max_timestamp_ms, header.max_timestamp_ms.to_ne_bytes());
        add(producer_id, header.producer_id.to_ne_bytes());
        add(producer_epoch, header.producer_epoch.to_ne_bytes());
        add(base_sequence, header.base_sequence.to_ne_bytes());
        add(records_count, header.records_count.to_ne_bytes());
        add(crc, header.crc.to_ne_bytes());
        add(crc_ok, [1]);
        self.row_count += 1;
    }
}

/// Batches without their bodies; control batches also whole, back to back.
#[derive(Default)]
pub struct Headers {
    pub columns: Columns,
    pub controls: Vec<u8>,
}

impl Headers {
    pub fn with_capacity(row_count: usize) -> Headers {
        Headers {
            columns: Columns::with_capacity(row_count),
            controls: Vec::new(),
        }
    }

    pub fn push(&mut self, header: &Header, pos: i64, batch: &[u8]) {
        self.columns.push(header, pos);
        if header.has(CONTROL_MASK) {
            self.controls.extend_from_slice(batch);
        }
    }
}

/// Walk the healthy batches from the start of `buf`, which is byte `file_pos` of the file, on.
///
/// Returns them and where the walk ended.
pub fn scan_window(
    buf: &[u8],
    file_pos: i64,
    neighbours: &mut Neighbours,
    verify_crc: bool,
) -> (Columns, usize) {
    let mut columns = Columns::default();
    let mut pos = 0;
    while let Some(header) = buf.get(pos..).and_then(Header::parse) {
        let Some(batch) = buf.get(pos..pos + header.batch_bytes) else {
            break;
        };
        if verify_crc && !has_right_checksum(&header, batch) || !neighbours.accept(&header) {
            break;
        }
        columns.push(&header, pos as i64 + file_pos);
        pos += header.batch_bytes;
    }
    (columns, pos)
}
