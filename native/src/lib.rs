//! The native kernel of eoctl: what `storage/kernels/native_kernel.py`, `eoctl/dump/log_text.py` and
//! `eoctl/clients/text/bulk_record_writers.py` use.
//!
//! The contract is that of the numpy kernel: only healthy batches are walked, or printed. Any other,
//! and any that is odd, ends the work at its start; the definition in plain Python goes on there.
//! From the entry down: lib, in_order, pieces, lines, records, bodies, java_utf8; window;
//! record_columns, line_columns, json_text; made_batches; batch.

mod batch;
mod bodies;
mod in_order;
mod java_utf8;
mod json_text;
mod line_columns;
mod lines;
mod made_batches;
mod pieces;
mod record_columns;
mod records;
mod window;

use std::any::Any;
use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use batch::Neighbours;
use bodies::Bodies;
use in_order::{Done, Reader};
use line_columns::LineColumn;
use lines::LineOptions;
use made_batches::{Cut, Stamp};
use pieces::{Job, Place, Task};
use window::{COLUMN_COUNT, Columns, Headers};

/// Changes with what a function takes or gives: `storage/kernels/select.py` asks for one number.
const INTERFACE: u32 = 4;

/// Something that the definition has to look at.
#[derive(Debug)]
pub struct Odd;

/// Turn a panic into an error that Python can tell of: it must not look like an interrupt.
fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
}

fn panic_error(panic: &(dyn Any + Send)) -> PyErr {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no words");
    PyRuntimeError::new_err(format!("the native kernel failed: {words}"))
}

thread_local! {
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) }; // reused
}

/// Work on the bytes of a buffer; on a copy, because Python may change its own.
fn with_copy<T>(py: Python<'_>, buf: &PyBuffer<u8>, work: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    COPY.with_borrow_mut(|copy| {
        let size = buf.item_count();
        if copy.len() < size {
            copy.resize(size, 0);
        }
        buf.copy_to_slice(py, &mut copy[..size])?;
        Ok(work(&copy[..size]))
    })
}

/// Walked: rows, where it ended, last offset, leader epoch, columns as bytes.
type Walked<'py> = (usize, u64, i64, i32, Bound<'py, PyTuple>);

fn walked<'py>(
    py: Python<'py>,
    parts: &[Columns],
    pos: u64,
    neighbours: &Neighbours,
) -> PyResult<Walked<'py>> {
    let mut columns = Vec::with_capacity(COLUMN_COUNT);
    for number in 0..COLUMN_COUNT {
        let parts = parts.iter().map(|part| &part.bytes[number][..]);
        columns.push(joined(py, parts)?);
    }
    Ok((
        parts.iter().map(|part| part.row_count).sum(),
        pos,
        neighbours.last_offset,
        neighbours.leader_epoch,
        PyTuple::new(py, columns)?,
    ))
}

fn joined<'py, 'a>(
    py: Python<'py>,
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = parts.clone().map(<[u8]>::len).sum();
    PyBytes::new_with(py, size, |bytes| {
        let mut left = bytes;
        for part in parts {
            let (here, rest) = left.split_at_mut(part.len());
            here.copy_from_slice(part);
            left = rest;
        }
        Ok(())
    })
}

/// Walk healthy batches in a buffer; see `pure.scan_window`, of which it is the twin.
///
/// Returns (rows, end of the walk in the buffer, last offset, leader epoch, columns as bytes).
#[pyfunction]
#[pyo3(signature = (buf, file_pos, neighbours, *, verify_crc))]
fn scan_window<'py>(
    py: Python<'py>,
    buf: PyBuffer<u8>,
    file_pos: i64,
    neighbours: (i64, i64, i64, i32),
    verify_crc: bool,
) -> PyResult<Walked<'py>> {
    guarded(|| {
        let (min_offset, max_offset, last_offset, leader_epoch) = neighbours;
        let mut neighbours = Neighbours {
            min_offset,
            max_offset,
            last_offset,
            leader_epoch,
        };
        let (columns, pos) = with_copy(py, &buf, |window| {
            window::scan_window(window, file_pos, &mut neighbours, verify_crc)
        })?;
        walked(py, &[columns], pos as u64, &neighbours)
    })
}

/// Gathers headers; an interrupt ends it.
#[derive(Default)]
struct Gathered {
    columns: Vec<Columns>,
    controls: Vec<Vec<u8>>,
}

impl Reader for Gathered {
    type Error = PyErr;

    fn write(&mut self, _: &[u8]) -> PyResult<()> {
        Ok(())
    }

    fn take(&mut self, headers: Headers) {
        self.columns.push(headers.columns);
        self.controls.push(headers.controls);
    }

    fn tick(&mut self, _: &Done) -> PyResult<()> {
        Python::attach(|py| py.check_signals())
    }
}

/// Walk healthy batches of a log, without their bodies: `scan_window` of one that reads itself.
///
/// Args:
///     path: of the log; it is opened anew.
///     start: behind which place: position, last offset, leader epoch.
///     walk_to_pos: batches that begin before it are walked.
///     end_pos: how much of the file to look at.
///     limits: least and largest offset that the segment may hold.
///     threads, piece_bytes: see `print_log`.
///
/// Returns (rows, end of the walk in the file, last offset, leader epoch, columns as bytes), and the
/// bytes of the control batches, back to back.
///
/// Raises:
///     OSError: the file cannot be opened.
#[pyfunction]
#[pyo3(signature = (path, *, start, walk_to_pos, end_pos, limits, verify_crc, threads, piece_bytes))]
#[allow(clippy::too_many_arguments)]
fn read_headers<'py>(
    py: Python<'py>,
    path: &str,
    start: (u64, i64, i32),
    walk_to_pos: u64,
    end_pos: u64,
    limits: (i64, i64),
    verify_crc: bool,
    threads: usize,
    piece_bytes: u64,
) -> PyResult<(Walked<'py>, Bound<'py, PyBytes>)> {
    guarded(|| {
        let job = Job {
            file: File::open(path)?,
            walk_to_pos: walk_to_pos.min(end_pos),
            end_pos,
            piece_bytes: piece_bytes.max(1),
            task: Task::Gather { verify_crc },
        };
        let mut gathered = Gathered::default();
        let place = place_of(start, limits);
        let done = py.detach(|| in_order::work_through(&job, place, -1, threads, &mut gathered))?;
        let controls = gathered.controls.iter().map(|part| &part[..]);
        Ok((
            walked(
                py,
                &gathered.columns,
                done.place.pos,
                &done.place.neighbours,
            )?,
            joined(py, controls)?,
        ))
    })
}

fn place_of(start: (u64, i64, i32), limits: (i64, i64)) -> Place {
    let (pos, last_offset, leader_epoch) = start;
    let (min_offset, max_offset) = limits;
    let neighbours = Neighbours {
        min_offset,
        max_offset,
        last_offset,
        leader_epoch,
    };
    Place { pos, neighbours }
}

/// Decode the records of batches in a buffer; see `record_table.decode_records`.
///
/// Args:
///     buf: holds the batches; its first byte is `buf_pos` of what positions refer to.
///     starts: where each begins in `buf`.
///     is_compressed: some are, so that positions refer to the source that is returned.
///
/// Returns (which are whole, columns of records and of record headers as bytes, source or None).
#[pyfunction]
#[allow(clippy::type_complexity)]
#[pyo3(signature = (buf, buf_pos, starts, *, is_compressed, max_batch_bytes, max_source_bytes))]
fn decode_records<'py>(
    py: Python<'py>,
    buf: PyBuffer<u8>,
    buf_pos: i64,
    starts: PyBuffer<i64>,
    is_compressed: bool,
    max_batch_bytes: usize,
    max_source_bytes: usize,
) -> PyResult<(
    Bound<'py, PyBytes>,
    Bound<'py, PyTuple>,
    Option<Bound<'py, PyBytes>>,
)> {
    guarded(|| {
        let starts = starts.to_vec(py)?;
        let starts = starts
            .into_iter()
            .map(|start| usize::try_from(start).unwrap_or(usize::MAX));
        let decoded = with_copy(py, &buf, |buf| {
            let mut bodies = Bodies::new(max_batch_bytes);
            record_columns::decode(
                buf,
                buf_pos,
                starts,
                &mut bodies,
                is_compressed,
                max_source_bytes,
            )
        })?;
        let columns = decoded.columns().map(|column| PyBytes::new(py, column));
        Ok((
            PyBytes::new(py, &decoded.is_whole),
            PyTuple::new(py, columns.collect::<Vec<_>>())?,
            decoded
                .source
                .as_ref()
                .map(|source| PyBytes::new(py, source)),
        ))
    })
}

/// Print records as JSON Lines; see `record_writers.encode_json`.
///
/// `columns` are those of `json_text::Records` in their order, positions before sizes;
/// `timestamp_type` is JSON already.
#[pyfunction]
#[pyo3(signature = (source, columns, timestamp_type, *, is_base64))]
fn json_lines<'py>(
    py: Python<'py>,
    source: PyBuffer<u8>,
    columns: [PyBuffer<i64>; 12],
    timestamp_type: &str,
    is_base64: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let mut copies = Vec::with_capacity(columns.len());
        for column in &columns {
            copies.push(column.to_vec(py)?);
        }
        let fields = |at: usize| json_text::Fields {
            pos: &copies[at],
            size: &copies[at + 1],
        };
        let text = with_copy(py, &source, |source| {
            let records = json_text::Records {
                source,
                offset: &copies[0],
                timestamp_ms: &copies[1],
                key: fields(2),
                value: fields(4),
                headers_count: &copies[6],
                first_header: &copies[7],
                header_key: fields(8),
                header_value: fields(10),
            };
            json_text::json_lines(&records, timestamp_type, is_base64)
        })?;
        let text = text.map_err(|_| PyRuntimeError::new_err("columns that do not fit"))?;
        Ok(PyBytes::new(py, &text))
    })
}

/// Print rows of columns as JSON Lines; see `recovery/export/piece.py`.
#[pyfunction]
#[pyo3(signature = (columns, row_count, *, is_text))]
fn object_lines<'py>(
    py: Python<'py>,
    columns: Vec<LineColumn>,
    row_count: usize,
    is_text: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let mut copies = Vec::with_capacity(columns.len());
        for column in columns {
            copies.push(column.copied(py)?);
        }
        let text = py.detach(|| json_text::object_lines(&copies, row_count, is_text));
        let text = text.map_err(|_| PyRuntimeError::new_err("columns that do not fit"))?;
        Ok(PyBytes::new(py, &text))
    })
}

/// Base offset, leader epoch, producer id, producer epoch, base sequence.
type StampFields = (i64, i32, i64, i16, i32);

fn stamp_of(fields: StampFields) -> Stamp {
    let (base_offset, leader_epoch, producer_id, producer_epoch, base_sequence) = fields;
    Stamp {
        base_offset,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
    }
}

/// Cut full batches from values[start:end], at most `limit` of them; see `ValueBatches`.
///
/// Returns their bytes and their records.
#[pyfunction]
#[pyo3(signature = (values, range, limit, *, batch_bytes, batch_records))]
fn cut_values(
    values: &Bound<'_, PyList>,
    range: (usize, usize),
    limit: usize,
    batch_bytes: usize,
    batch_records: usize,
) -> PyResult<(Vec<usize>, Vec<usize>)> {
    guarded(|| {
        let mut cut = Cut::new(batch_bytes, batch_records);
        let (mut sizes, mut counts) = (Vec::new(), Vec::new());
        for at in range.0..range.1.min(values.len()) {
            let value = values.get_item(at)?;
            if let Some((bytes, count)) = cut.take(value.cast::<PyBytes>()?.as_bytes().len()) {
                sizes.push(bytes);
                counts.push(count);
                if sizes.len() >= limit {
                    break;
                }
            }
        }
        Ok((sizes, counts))
    })
}

/// Encode batches that `cut_values` found, the first of which has the stamp.
#[pyfunction]
#[pyo3(signature = (values, start, batches, stamp, *, timestamp_ms, is_transactional))]
fn encode_values<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyList>,
    start: usize,
    batches: Vec<(usize, usize)>,
    stamp: StampFields,
    timestamp_ms: i64,
    is_transactional: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let mut found = Vec::new();
        for at in start..start + batches.iter().map(|batch| batch.1).sum::<usize>() {
            found.push(values.get_item(at)?.cast_into::<PyBytes>()?);
        }
        let size = batches.iter().map(|batch| batch.0).sum();
        PyBytes::new_with(py, size, |data| {
            let values = found.iter().map(|value| value.as_bytes());
            let stamp = stamp_of(stamp);
            made_batches::encode(
                data,
                &batches,
                values,
                timestamp_ms,
                is_transactional,
                stamp,
            )
            .ok_or_else(|| PyRuntimeError::new_err("values that do not fill the batches"))
        })
    })
}

/// Stamp batches that lie one behind the other in a buffer; see `copied_batch.stamp_run`.
#[pyfunction]
fn stamp_batches<'py>(
    py: Python<'py>,
    data: PyBuffer<u8>,
    batch_bytes: PyBuffer<i64>,
    stamp: StampFields,
) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let batch_bytes = batch_bytes.to_vec(py)?;
        PyBytes::new_with(py, data.item_count(), |stamped| {
            data.copy_to_slice(py, stamped)?;
            made_batches::stamp(stamped, &batch_bytes, stamp_of(stamp))
                .ok_or_else(|| PyRuntimeError::new_err("sizes that are not those of the batches"))
        })
    })
}

/// How far a log is printed; see `in_order::Done`. Places are (position, last offset, leader epoch).
#[pyclass(frozen, get_all)]
struct Printed {
    place: (u64, i64, i32),
    sure: (u64, i64, i32),
    last_record_offset: i64,
    non_consecutive: Vec<(i64, i64)>,
}

fn as_tuple(place: Place) -> (u64, i64, i32) {
    (
        place.pos,
        place.neighbours.last_offset,
        place.neighbours.leader_epoch,
    )
}

/// Writes to the standard output, or to what the caller gave; tells the caller how far it is.
struct ToPython {
    stdout: Option<File>,
    write: Option<Py<PyAny>>,
    tick: Option<Py<PyAny>>,
}

impl Reader for ToPython {
    type Error = PyErr;

    fn write(&mut self, mut text: &[u8]) -> PyResult<()> {
        if let Some(write) = &self.write {
            return Python::attach(|py| write.call1(py, (PyBytes::new(py, text),)).map(drop));
        }
        let Some(stdout) = &mut self.stdout else {
            return Ok(());
        };
        while !text.is_empty() {
            match stdout.write(text) {
                Ok(count) => text = &text[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            if !text.is_empty() {
                // A signal ends a write to a full pipe, in which a part may have found room.
                Python::attach(|py| py.check_signals())?;
            }
        }
        Ok(())
    }

    fn take(&mut self, _: Headers) {}

    fn tick(&mut self, done: &Done) -> PyResult<()> {
        Python::attach(|py| {
            py.check_signals()?;
            match &self.tick {
                Some(tick) => tick.call1(py, (done.place.pos,)).map(drop),
                None => Ok(()),
            }
        })
    }
}

/// Print the healthy start of a log as kafka-dump-log does.
///
/// Args:
///     path: of the log; it is opened anew.
///     start: behind which place: position, last offset, leader epoch.
///     last_record_offset: of the last record printed, -1 before the first.
///     end_pos: how much of the file to look at.
///     limits: least and largest offset that the segment may hold.
///     records: None for batches alone, else whether keys and values are printed, and whether they
///         are all that is.
///     max_batch_bytes: what decompresses to more is left to the caller.
///     threads: to use besides the calling one; 1 is that one alone.
///     piece_bytes: what a thread reads at once.
///     write: takes bytes; None is the standard output, of which nothing may wait in a buffer.
///     tick: is told the position from time to time.
///
/// Raises:
///     OSError: the file cannot be opened, or writing failed.
#[pyfunction]
#[pyo3(signature = (path, *, start, last_record_offset, end_pos, limits, records, max_batch_bytes, threads, piece_bytes, write=None, tick=None))]
#[allow(clippy::too_many_arguments)]
fn print_log(
    py: Python<'_>,
    path: &str,
    start: (u64, i64, i32),
    last_record_offset: i64,
    end_pos: u64,
    limits: (i64, i64),
    records: Option<(bool, bool)>,
    max_batch_bytes: usize,
    threads: usize,
    piece_bytes: u64,
    write: Option<Py<PyAny>>,
    tick: Option<Py<PyAny>>,
) -> PyResult<Printed> {
    guarded(|| {
        let records = records.map(|(print_data, skip_record_metadata)| LineOptions {
            print_data,
            skip_record_metadata,
        });
        let job = Job {
            file: File::open(path)?,
            walk_to_pos: end_pos,
            end_pos,
            piece_bytes: piece_bytes.max(1),
            task: Task::Print {
                records,
                max_batch_bytes,
            },
        };
        let stdout = match write {
            Some(_) => None,
            None => Some(File::from(std::io::stdout().as_fd().try_clone_to_owned()?)),
        };
        let mut reader = ToPython {
            stdout,
            write,
            tick,
        };
        let done = py.detach(|| {
            in_order::work_through(
                &job,
                place_of(start, limits),
                last_record_offset,
                threads,
                &mut reader,
            )
        })?;
        Ok(Printed {
            place: as_tuple(done.place),
            sure: as_tuple(done.sure),
            last_record_offset: done.last_record_offset,
            non_consecutive: done.non_consecutive,
        })
    })
}

/// Decode bytes as `java_utf8.kafka_text` does, and encode the text.
#[pyfunction]
fn kafka_text<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    guarded(|| {
        let mut text = Vec::with_capacity(data.len());
        java_utf8::push_text(&mut text, data);
        Ok(PyBytes::new(py, &text))
    })
}

#[pymodule]
fn eoctl_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // What panics says so in the error that it becomes.
    std::panic::set_hook(Box::new(|_| {}));
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<Printed>()?;
    for each in [
        wrap_pyfunction!(scan_window, module)?,
        wrap_pyfunction!(read_headers, module)?,
        wrap_pyfunction!(print_log, module)?,
        wrap_pyfunction!(kafka_text, module)?,
        wrap_pyfunction!(decode_records, module)?,
        wrap_pyfunction!(json_lines, module)?,
        wrap_pyfunction!(object_lines, module)?,
        wrap_pyfunction!(cut_values, module)?,
        wrap_pyfunction!(encode_values, module)?,
        wrap_pyfunction!(stamp_batches, module)?,
    ] {
        module.add_function(each)?;
    }
    Ok(())
}
