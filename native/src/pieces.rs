//! A piece of a log: read, walked, and printed or gathered by one thread.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::Odd;
use crate::batch::{HEADER_BYTES, Header, Neighbours, has_right_checksum};
use crate::bodies::Bodies;
use crate::lines::{LineOptions, OffsetFollower, RecordLines, push_batch_line};
use crate::window::Headers;

const MAX_BATCH_BYTES: usize = 32 << 20;
const MANY_RECORDS: i32 = 8192; // whose lines are handed on before the next ones are made
const MAX_CHUNK_BYTES: usize = 1 << 20; // of text that is handed on at once

/// What is done, and to what.
pub struct Job {
    pub file: File,
    pub walk_to_pos: u64, // batches that begin before it are worked on
    pub end_pos: u64,
    pub piece_bytes: u64,
    pub task: Task,
}

pub enum Task {
    /// Print batches, and records with options.
    Print {
        records: Option<LineOptions>,
        max_batch_bytes: usize,
    },
    /// Gather headers.
    Gather { verify_crc: bool },
}

/// Between two batches: where, and what was before.
#[derive(Clone, Copy)]
pub struct Place {
    pub pos: u64,
    pub neighbours: Neighbours,
}

/// Nobody wants the rest any more.
pub struct Stopped;

/// Takes text and gives a buffer for more.
pub type Sink<'a> = dyn FnMut(Vec<u8>) -> Result<Vec<u8>, Stopped> + 'a;

/// How a piece came out.
pub struct PieceEnd {
    pub start: Place,
    pub end: Place,
    pub batch_count: u64,
    pub is_over: bool, // what follows is not healthy, is odd, or is the end
    pub follower: OffsetFollower, // if it was printed
    pub headers: Headers, // if it was gathered
}

/// The buffers of one thread.
pub struct Piece<'a> {
    job: &'a Job,
    buf: Vec<u8>, // as long as it ever had to be
    buf_pos: u64,
    filled: usize,
    starts: Vec<usize>,
    bodies: Bodies,
}

impl<'a> Piece<'a> {
    pub fn new(job: &'a Job) -> Piece<'a> {
        Piece {
            job,
            buf: Vec::new(),
            buf_pos: 0,
            filled: 0,
            starts: Vec::new(),
            bodies: Bodies::new(match job.task {
                Task::Print {
                    max_batch_bytes, ..
                } => max_batch_bytes,
                Task::Gather { .. } => 0,
            }),
        }
    }

    /// Read from `pos` up to `limit_pos`.
    pub fn read(&mut self, pos: u64, limit_pos: u64) {
        self.buf_pos = pos;
        self.filled = 0;
        let limit_pos = limit_pos.min(self.job.walk_to_pos);
        self.read_up_to(limit_pos.saturating_sub(pos) as usize);
    }

    /// Have `wanted` bytes in the buffer, fewer only at the end or where the file cannot be read.
    fn read_up_to(&mut self, wanted: usize) {
        let left = self.job.end_pos.saturating_sub(self.buf_pos);
        let wanted = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted > self.buf.len() {
            self.buf.resize(wanted, 0);
        }
        while self.filled < wanted {
            let pos = self.buf_pos + self.filled as u64;
            match self
                .job
                .file
                .read_at(&mut self.buf[self.filled..wanted], pos)
            {
                Ok(count) if count > 0 => self.filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// Find the batches from `start` on that begin before `limit_pos`, by their headers alone.
    ///
    /// Returns where they end, and whether nothing healthy follows. Reads what is missing of the last.
    pub fn walk(&mut self, start: Place, limit_pos: u64) -> (Place, bool) {
        let mut place = start;
        self.starts.clear();
        let limit_pos = limit_pos.min(self.job.walk_to_pos);
        while place.pos < limit_pos {
            let at = (place.pos - self.buf_pos) as usize;
            self.read_up_to(at + HEADER_BYTES);
            let left = (self.job.end_pos - place.pos) as usize;
            let Some(header) = Header::parse(&self.buf[at.min(self.filled)..self.filled]) else {
                return (place, true);
            };
            if header.batch_bytes > left.min(MAX_BATCH_BYTES) {
                return (place, true);
            }
            self.read_up_to(at + header.batch_bytes);
            if at + header.batch_bytes > self.filled || !place.neighbours.accept(&header) {
                return (place, true);
            }
            self.starts.push(at);
            place.pos += header.batch_bytes as u64;
        }
        (place, place.pos >= self.job.walk_to_pos)
    }

    /// How many batches the last walk has found.
    pub fn batch_count(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Do the task with what was walked from `start` on; `walked` is what `walk` returned.
    ///
    /// `text` is an empty buffer; one comes back.
    pub fn finish(
        &mut self,
        start: Place,
        walked: (Place, bool),
        text: Vec<u8>,
        sink: &mut Sink,
    ) -> Result<(PieceEnd, Vec<u8>), Stopped> {
        match self.job.task {
            Task::Print { records, .. } => self.print(start, walked, records, text, sink),
            Task::Gather { verify_crc } => Ok((self.gather(start, walked, verify_crc), text)),
        }
    }

    fn gather(&self, start: Place, walked: (Place, bool), verify_crc: bool) -> PieceEnd {
        let mut headers = Headers::with_capacity(self.starts.len());
        let (mut place, mut is_over) = (start, walked.1);
        for &at in &self.starts {
            let batch = &self.buf[at..self.filled];
            let Some(header) = Header::parse(batch) else {
                is_over = true;
                break;
            };
            let batch = &batch[..header.batch_bytes];
            if verify_crc && !has_right_checksum(&header, batch) {
                is_over = true;
                break;
            }
            headers.push(&header, place.pos as i64, batch);
            place.neighbours.accept(&header);
            place.pos += header.batch_bytes as u64;
        }
        PieceEnd {
            start,
            end: place,
            batch_count: headers.columns.row_count as u64,
            is_over,
            follower: OffsetFollower::default(),
            headers,
        }
    }

    fn print(
        &mut self,
        start: Place,
        walked: (Place, bool),
        records: Option<LineOptions>,
        mut text: Vec<u8>,
        sink: &mut Sink,
    ) -> Result<(PieceEnd, Vec<u8>), Stopped> {
        let mut follower = OffsetFollower::default();
        let (mut place, mut batch_count, mut is_over) = (start, 0, walked.1);
        for &at in &self.starts {
            let batch = &self.buf[at..self.filled];
            let mut page = Page {
                text,
                follower,
                sink,
            };
            let printed = print_batch(records, &mut self.bodies, &mut page, batch, place.pos);
            (text, follower) = (page.text, page.follower);
            let header = match printed {
                Ok(header) => header,
                Err(End::Stopped) => return Err(Stopped),
                Err(End::Odd) => {
                    is_over = true;
                    break;
                }
            };
            place.neighbours.accept(&header);
            place.pos += header.batch_bytes as u64;
            batch_count += 1;
            if text.len() >= MAX_CHUNK_BYTES {
                text = sink(text)?;
            }
        }
        let spare = sink(text)?;
        Ok((
            PieceEnd {
                start,
                end: place,
                batch_count,
                is_over,
                follower,
                headers: Headers::default(),
            },
            spare,
        ))
    }
}

/// What is printed, and where it goes.
struct Page<'a, 'b> {
    text: Vec<u8>,
    follower: OffsetFollower,
    sink: &'a mut Sink<'b>,
}

enum End {
    Odd,
    Stopped,
}

impl From<Odd> for End {
    fn from(_: Odd) -> End {
        End::Odd
    }
}

/// Print the batch at the start of `buf`. If it is odd, nothing of it is on the page.
fn print_batch(
    records: Option<LineOptions>,
    bodies: &mut Bodies,
    page: &mut Page,
    buf: &[u8],
    pos: u64,
) -> Result<Header, End> {
    let header = Header::parse(buf).ok_or(Odd)?;
    let batch = &buf[..header.batch_bytes];
    if !has_right_checksum(&header, batch) {
        return Err(End::Odd);
    }
    let Some(options) = records else {
        push_batch_line(&mut page.text, &header, pos);
        return Ok(header);
    };
    let mut body = &batch[HEADER_BYTES..];
    if header.codec() != 0 && header.records_count > 0 {
        body = bodies.decompress(header.codec(), body)?;
    }
    let mut records = RecordLines::new(&header, body, options)?;
    if header.records_count > MANY_RECORDS {
        records.check()?; // some of it will be written before the last is looked at
    }
    let (length, mark) = (page.text.len(), page.follower.mark());
    push_batch_line(&mut page.text, &header, pos);
    loop {
        match records.push(&mut page.text, &mut page.follower, MANY_RECORDS) {
            Ok(false) => return Ok(header),
            Ok(true) => {
                let text = std::mem::take(&mut page.text);
                page.text = (page.sink)(text).map_err(|Stopped| End::Stopped)?;
            }
            Err(Odd) => {
                page.text.truncate(length);
                page.follower.go_back(mark);
                return Err(End::Odd);
            }
        }
    }
}
