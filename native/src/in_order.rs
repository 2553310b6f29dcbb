//! The pieces of a log, in the threads that there are, handed on in their order.
//!
//! Each thread reads its next piece ahead. The walk over the headers goes from piece to piece, in
//! their order: it is short, and where it comes to is where the next piece begins. Checksums,
//! columns and lines are made after it, by all threads at once. So nothing is ever guessed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::pieces::{Job, Piece, PieceEnd, Place, Stopped, Task};
use crate::window::Headers;

const LOOK_COUNT: u64 = 4; // as `storage/kernels/offset_order.py`
const TICK: Duration = Duration::from_millis(100);
const PIECES_A_TICK: u64 = 32;
const CHUNKS_AHEAD: usize = 2; // of text that wait for their turn, of one piece
// Of larger batches little but reading and checksums is to be done, which two threads do no faster.
const LARGE_BATCH_BYTES: u64 = 2 << 10;
const SAMPLE_BYTES: u64 = 64 << 10; // tell how large batches are

/// Gets the text or the headers, and is asked from time to time whether to go on.
pub trait Reader {
    type Error;
    fn write(&mut self, text: &[u8]) -> Result<(), Self::Error>;
    fn take(&mut self, headers: Headers);
    fn tick(&mut self, done: &Done) -> Result<(), Self::Error>;
}

/// How far the log is done.
pub struct Done {
    pub place: Place,
    pub sure: Place, // so many batches before that none behind it can be doubted any more
    pub last_record_offset: i64,
    pub non_consecutive: Vec<(i64, i64)>,
    recent: VecDeque<(Place, u64)>, // where the last pieces began, and their batches
}

impl Done {
    fn new(start: Place, last_record_offset: i64) -> Done {
        Done {
            place: start,
            sure: start,
            last_record_offset,
            non_consecutive: Vec::new(),
            recent: VecDeque::new(),
        }
    }

    fn add(&mut self, piece: PieceEnd) {
        self.place = piece.end;
        if let Some(first_offset) = piece.follower.first_offset {
            if first_offset != self.last_record_offset.wrapping_add(1) {
                self.non_consecutive
                    .push((self.last_record_offset, first_offset));
            }
            self.non_consecutive.extend(piece.follower.non_consecutive);
            self.last_record_offset = piece.follower.last_offset;
        }
        self.recent.push_back((piece.start, piece.batch_count));
        let mut behind: u64 = self.recent.iter().map(|(_, count)| count).sum();
        while let Some((_, count)) = self.recent.front() {
            if behind - count < LOOK_COUNT {
                break;
            }
            behind -= count;
            self.recent.pop_front();
        }
        if let Some((start, _)) = self.recent.front() {
            self.sure = *start;
        }
    }
}

/// Work through the healthy start of what follows `start`.
pub fn work_through<R: Reader>(
    job: &Job,
    start: Place,
    last_record_offset: i64,
    threads: usize,
    reader: &mut R,
) -> Result<Done, R::Error> {
    let mut done = Done::new(start, last_record_offset);
    let is_long = job.walk_to_pos.saturating_sub(start.pos) > job.piece_bytes * threads as u64;
    if threads > 1 && is_long && has_work_for_threads(job, start) {
        go_with_threads(job, threads, reader, &mut done)?;
    } else {
        go_alone(job, reader, &mut done)?;
    }
    Ok(done)
}

/// Whether more is to be done than to read headers and checksums of large batches.
fn has_work_for_threads(job: &Job, start: Place) -> bool {
    let Task::Print { records: None, .. } = job.task else {
        return true;
    };
    let limit_pos = start.pos + SAMPLE_BYTES;
    let mut piece = Piece::new(job);
    piece.read(start.pos, limit_pos);
    let (end, _) = piece.walk(start, limit_pos);
    (end.pos - start.pos) < LARGE_BATCH_BYTES * piece.batch_count()
}

fn go_alone<R: Reader>(job: &Job, reader: &mut R, done: &mut Done) -> Result<(), R::Error> {
    let mut piece = Piece::new(job);
    let mut text = Vec::new();
    for count in 1.. {
        let start = done.place;
        let limit_pos = start.pos + job.piece_bytes;
        piece.read(start.pos, limit_pos);
        let walked = piece.walk(start, limit_pos);
        let mut failed = None;
        let mut sink = |mut text: Vec<u8>| match reader.write(&text) {
            Ok(()) => {
                text.clear();
                Ok(text)
            }
            Err(error) => {
                failed = Some(error);
                Err(Stopped)
            }
        };
        let Ok((mut end, spare)) = piece.finish(start, walked, text, &mut sink) else {
            return failed.map_or(Ok(()), Err);
        };
        text = spare;
        let is_over = end.is_over;
        reader.take(std::mem::take(&mut end.headers));
        done.add(end);
        if is_over || count % PIECES_A_TICK == 0 {
            reader.tick(done)?;
        }
        if is_over {
            break;
        }
    }
    Ok(())
}

/// What the threads share.
struct Board {
    walk_index: u64, // whose turn it is to walk, from where
    walk_start: Place,
    is_walk_over: bool,
    write_index: u64, // whose text is written
    texts: BTreeMap<u64, PieceText>,
    spare: Vec<Vec<u8>>,
    is_stopped: bool,
}

#[derive(Default)]
struct PieceText {
    chunks: VecDeque<Vec<u8>>,
    end: Option<PieceEnd>,
}

struct Shared {
    board: Mutex<Board>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until `is_so`; Stopped if the work is stopped before.
    fn wait_until(&self, is_so: impl Fn(&Board) -> bool) -> Result<MutexGuard<'_, Board>, Stopped> {
        let mut board = self.lock();
        while !board.is_stopped && !is_so(&board) {
            board = self
                .changed
                .wait(board)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if board.is_stopped {
            Err(Stopped)
        } else {
            Ok(board)
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }
}

/// Stops all threads when it goes, also in a panic.
struct StopsAll<'a>(&'a Shared);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.change(|board| board.is_stopped = true);
    }
}

fn go_with_threads<R: Reader>(
    job: &Job,
    threads: usize,
    reader: &mut R,
    done: &mut Done,
) -> Result<(), R::Error> {
    let first_index = done.place.pos / job.piece_bytes;
    let shared = Shared {
        board: Mutex::new(Board {
            walk_index: first_index,
            walk_start: done.place,
            is_walk_over: false,
            write_index: first_index,
            texts: BTreeMap::new(),
            spare: Vec::new(),
            is_stopped: false,
        }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let stops_all = StopsAll(&shared);
        for number in 0..threads as u64 {
            let shared = &shared;
            scope.spawn(move || {
                let stops_all = StopsAll(shared);
                if work(job, shared, first_index + number, threads as u64).is_ok() {
                    std::mem::forget(stops_all);
                }
            });
        }
        let result = write_in_order(&shared, reader, done);
        drop(stops_all);
        result
    })
}

/// Do every `step`th piece from `index` on.
fn work(job: &Job, shared: &Shared, mut index: u64, step: u64) -> Result<(), Stopped> {
    let mut piece = Piece::new(job);
    let mut text = Vec::new();
    let ahead = match job.task {
        Task::Print { .. } => 2 * step,
        Task::Gather { .. } => u64::MAX, // all is wanted anyway, and small
    };
    while index * job.piece_bytes < job.walk_to_pos {
        let (start_pos, limit_pos) = (index * job.piece_bytes, (index + 1) * job.piece_bytes);
        let own_pos = {
            let board =
                shared.wait_until(|board| index < board.write_index.saturating_add(ahead))?;
            start_pos.max(board.walk_start.pos)
        };
        piece.read(own_pos, limit_pos);
        let start = {
            let board =
                shared.wait_until(|board| board.is_walk_over || board.walk_index == index)?;
            if board.is_walk_over {
                return Ok(());
            }
            board.walk_start
        };
        let walked = piece.walk(start, limit_pos);
        shared.change(|board| {
            board.walk_index += 1;
            (board.walk_start, board.is_walk_over) = walked;
        });
        let mut sink = |text: Vec<u8>| {
            let has_room = |board: &Board| {
                board
                    .texts
                    .get(&index)
                    .is_none_or(|text| text.chunks.len() < CHUNKS_AHEAD)
            };
            drop(shared.wait_until(has_room)?);
            Ok(shared.change(|board| {
                board.texts.entry(index).or_default().chunks.push_back(text);
                board.spare.pop().unwrap_or_default()
            }))
        };
        let (end, spare) = piece.finish(start, walked, text, &mut sink)?;
        text = spare;
        shared.change(|board| board.texts.entry(index).or_default().end = Some(end));
        index += step;
    }
    Ok(())
}

fn write_in_order<R: Reader>(
    shared: &Shared,
    reader: &mut R,
    done: &mut Done,
) -> Result<(), R::Error> {
    loop {
        let (chunk, end) = {
            let board = shared.lock();
            let is_idle = |board: &mut Board| {
                let index = board.write_index;
                !board.is_stopped
                    && board
                        .texts
                        .get(&index)
                        .is_none_or(|text| text.chunks.is_empty() && text.end.is_none())
            };
            let (mut board, _) = shared
                .changed
                .wait_timeout_while(board, TICK, is_idle)
                .unwrap_or_else(PoisonError::into_inner);
            if board.is_stopped {
                return Ok(()); // a thread has gone: the caller sees why
            }
            let index = board.write_index;
            let text = board.texts.entry(index).or_default();
            let chunk = text.chunks.pop_front();
            (
                chunk,
                if text.chunks.is_empty() {
                    text.end.take()
                } else {
                    None
                },
            )
        };
        let is_tick = chunk.is_none() && end.is_none();
        if let Some(mut chunk) = chunk {
            reader.write(&chunk)?;
            chunk.clear();
            shared.change(|board| board.spare.push(chunk));
        }
        let mut is_over = false;
        if let Some(mut end) = end {
            is_over = end.is_over;
            reader.take(std::mem::take(&mut end.headers));
            done.add(end);
            shared.change(|board| {
                let index = board.write_index;
                board.texts.remove(&index);
                board.write_index += 1;
            });
        }
        if is_tick || is_over || shared.lock().write_index.is_multiple_of(PIECES_A_TICK) {
            reader.tick(done)?;
        }
        if is_over {
            return Ok(());
        }
    }
}
