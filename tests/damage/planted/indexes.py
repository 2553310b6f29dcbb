"""Faults in `.index`, `.timeindex` and `.txnindex`: IDX-1 to IDX-6, TIM-1 to TIM-4, TXI-1 to TXI-7."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.layout import INDEX, TIME_INDEX, TXN_INDEX
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
BASE = "00000000000000000000"
PLAIN, MANY, TXN = f"plain-0/{BASE}", f"many-producers-0/{BASE}", f"txn-0/{BASE}"
PLAIN_INDEX, PLAIN_TIMES, TXN_ENTRIES = f"{PLAIN}.index", f"{PLAIN}.timeindex", f"{TXN}.txnindex"


def _grow(path: Path, tail: bytes) -> int:
    before = path.read_bytes()
    layout.write(path, before + tail)
    return len(before)


# --- .index ---------------------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def index_of_odd_size(log_dir: Path) -> Expected:
    _grow(log_dir / PLAIN_INDEX, b"\x00\x00\x07")
    return Expected("IDX-1", PLAIN_INDEX, severity="error")


@FAULTS.plants("clean", "plain-0")
def time_index_of_odd_size(log_dir: Path) -> Expected:
    _grow(log_dir / PLAIN_TIMES, b"\x00\x00\x07\x00\x00\x00\x00\x00")
    return Expected("IDX-1", PLAIN_TIMES, severity="error")


@FAULTS.plants("clean", "plain-0")
def index_entries_swapped(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_INDEX, INDEX)
    rows[3], rows[4] = rows[4], rows[3]
    layout.write_entries(log_dir / PLAIN_INDEX, INDEX, rows)
    return Expected("IDX-2", PLAIN_INDEX, 4 * 8, "error")


@FAULTS.plants("clean", "plain-0")
def index_entry_repeated(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_INDEX, INDEX)
    layout.write_entries(log_dir / PLAIN_INDEX, INDEX, [*rows, rows[-1]])
    return Expected("IDX-2", PLAIN_INDEX, len(rows) * 8, "error")


@FAULTS.plants("clean", "plain-0")
def index_position_negative(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_INDEX, INDEX)
    rows[2] = (rows[2][0], -rows[2][1])
    layout.write_entries(log_dir / PLAIN_INDEX, INDEX, rows)
    return Expected("IDX-2", PLAIN_INDEX, 2 * 8 + 4, "error")


@FAULTS.plants("clean", "plain-0")
def index_position_inside_a_batch(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_INDEX, INDEX)
    rows[4] = (rows[4][0], rows[4][1] + 1)
    layout.write_entries(log_dir / PLAIN_INDEX, INDEX, rows)
    return Expected("IDX-3", PLAIN_INDEX, 4 * 8, "error")


@FAULTS.plants("crash", "plain-0")
def index_position_that_recovery_mends(log_dir: Path) -> Expected:
    """All segments are above the recovery point."""
    layout.patch(log_dir / PLAIN_INDEX, 4 * 8 + 7, b"\x00")
    return Expected("IDX-3", PLAIN_INDEX, 4 * 8, "note")


@FAULTS.plants("crash", "rolled-0")
def index_position_below_recovery_point(log_dir: Path) -> Expected:
    path = layout.segment(log_dir / "rolled-0", 25, "index")
    rows = layout.entries_of(path, INDEX)
    rows[1] = (rows[1][0], rows[1][1] + 1)
    layout.write_entries(path, INDEX, rows)
    return Expected("IDX-3", f"rolled-0/{path.name}", 8, "error")


@FAULTS.plants("clean", "many-producers-0")
def index_position_behind_its_offset(log_dir: Path) -> Expected:
    """A reader that starts there misses the records of the batch before."""
    path = log_dir / f"{MANY}.index"
    rows = layout.entries_of(path, INDEX)
    batches = layout.walk((log_dir / f"{MANY}.log").read_bytes())
    at = next(number for number, each in enumerate(batches) if each.pos == rows[2][1])
    rows[2] = (rows[2][0], batches[at + 1].pos)
    layout.write_entries(path, INDEX, rows)
    return Expected("IDX-3", path.relative_to(log_dir).as_posix(), 2 * 8, "error")


@FAULTS.plants("clean", "plain-0")
def index_beyond_the_log(log_dir: Path) -> Expected:
    """A clean start would take the segment's base for the log's end."""
    rows = layout.entries_of(log_dir / PLAIN_INDEX, INDEX)
    rows[-1] = (rows[-1][0] + 1000, rows[-1][1])
    layout.write_entries(log_dir / PLAIN_INDEX, INDEX, rows)
    return Expected("IDX-4", PLAIN_INDEX, severity="error")


@FAULTS.plants("clean", "plain-0")
def index_zero_tail_after_clean_stop(log_dir: Path) -> Expected:
    pos = _grow(log_dir / PLAIN_INDEX, bytes(16384 - 72))
    return Expected("IDX-5", PLAIN_INDEX, pos, "error")


@FAULTS.plants("clean", "plain-0", closure=("TAK-1",))
def time_index_zero_tail_after_clean_stop(log_dir: Path) -> Expected:
    pos = _grow(log_dir / PLAIN_TIMES, bytes(16380 - 108))
    return Expected("IDX-5", PLAIN_TIMES, pos, "error")


@FAULTS.plants("crash", "rolled-0")
def index_zero_tail_of_a_rolled_segment(log_dir: Path) -> Expected:
    """Rolling trims, and no recovery comes here: the segment is below the recovery point."""
    path = layout.segment(log_dir / "rolled-0", 0, "index")
    pos = _grow(path, bytes(800))
    return Expected("IDX-5", f"rolled-0/{path.name}", pos)


@FAULTS.plants("clean", "many-producers-0", "__cluster_metadata-0")
def index_entries_missing(log_dir: Path) -> Expected:
    """The metadata log knows the topic's interval."""
    path = log_dir / f"{MANY}.index"
    rows = layout.entries_of(path, INDEX)
    layout.write_entries(path, INDEX, [rows[0], rows[-1]])
    return Expected("IDX-6", f"{MANY}.index", severity="note")


# --- .timeindex -----------------------------------------------------------------------------------


# A timestamp that is too low skips records.
@FAULTS.plants("clean", "plain-0", closure=("TIM-2",))
def time_index_entries_out_of_order(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_TIMES, TIME_INDEX)
    rows[4] = (rows[3][0], rows[4][1])
    layout.write_entries(log_dir / PLAIN_TIMES, TIME_INDEX, rows)
    return Expected("TIM-1", PLAIN_TIMES, 4 * 12, "error")


# The batch at that offset has another timestamp.
@FAULTS.plants("clean", "plain-0", closure=("TIM-3",))
def time_index_offsets_out_of_order(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_TIMES, TIME_INDEX)
    rows[4] = (rows[4][0], rows[2][1])
    layout.write_entries(log_dir / PLAIN_TIMES, TIME_INDEX, rows)
    return Expected("TIM-1", PLAIN_TIMES, 4 * 12 + 8, "error")


@FAULTS.plants("clean", "plain-0")
def time_index_skips_records(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_TIMES, TIME_INDEX)
    rows[3] = (rows[3][0] - 1, rows[3][1])
    layout.write_entries(log_dir / PLAIN_TIMES, TIME_INDEX, rows)
    return Expected("TIM-2", PLAIN_TIMES, 3 * 12, "error")


@FAULTS.plants("clean", "plain-0")
def time_index_timestamp_of_no_batch(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / PLAIN_TIMES, TIME_INDEX)
    rows[3] = (rows[3][0] + 1, rows[3][1])
    layout.write_entries(log_dir / PLAIN_TIMES, TIME_INDEX, rows)
    return Expected("TIM-3", PLAIN_TIMES, 3 * 12, "warning")


@FAULTS.plants("clean", "rolled-0")
def time_index_lacks_the_maximum(log_dir: Path) -> Expected:
    path = layout.segment(log_dir / "rolled-0", 0, "timeindex")
    rows = layout.entries_of(path, TIME_INDEX)
    layout.write_entries(path, TIME_INDEX, rows[:-1])
    return Expected("TIM-4", f"rolled-0/{path.name}", severity="warning")


# --- .txnindex ------------------------------------------------------------------------------------


def _edit_aborted(log_dir: Path, index: int, **fields: int) -> int:
    """Set fields of one entry of txn-0. Returns the entry's position."""
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    rows = layout.entries_of(log_dir / TXN_ENTRIES, TXN_INDEX)
    values = {**dict(zip(names, rows[index], strict=True)), **fields}
    rows[index] = tuple(values[name] for name in names)
    layout.write_entries(log_dir / TXN_ENTRIES, TXN_INDEX, rows)
    return index * TXN_INDEX.size


def _insert_aborted(log_dir: Path, row: tuple[int, ...]) -> None:
    """Put an entry in front of all others."""
    rows = layout.entries_of(log_dir / TXN_ENTRIES, TXN_INDEX)
    layout.write_entries(log_dir / TXN_ENTRIES, TXN_INDEX, [row, *rows])


@FAULTS.plants("clean", "txn-0")
def txn_index_fragment(log_dir: Path) -> Expected:
    _grow(log_dir / TXN_ENTRIES, b"\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00")
    return Expected("TXI-1", TXN_ENTRIES, severity="warning")


@FAULTS.plants("clean", "txn-0")
def txn_index_version(log_dir: Path) -> Expected:
    """Kafka reads the first byte of the version only."""
    return Expected("TXI-1", TXN_ENTRIES, _edit_aborted(log_dir, 2, version=1))


@FAULTS.plants("clean", "txn-0")
def txn_index_entries_swapped(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / TXN_ENTRIES, TXN_INDEX)
    rows[4], rows[5] = rows[5], rows[4]
    layout.write_entries(log_dir / TXN_ENTRIES, TXN_INDEX, rows)
    return Expected("TXI-2", TXN_ENTRIES, 5 * 34 + 18, "error")


# It is not where the transaction begins, either.
@FAULTS.plants("clean", "txn-0", closure=("TXI-6",))
def txn_index_first_offset_at_the_marker(log_dir: Path) -> Expected:
    pos = _edit_aborted(log_dir, 3, first_offset=69)
    return Expected("TXI-2", TXN_ENTRIES, pos + 10, "error")


# The real producer's aborted transaction is hidden no more.
@FAULTS.plants("clean", "txn-0", closure=("TXI-4",))
def txn_index_other_producer(log_dir: Path) -> Expected:
    pos = _edit_aborted(log_dir, 3, producer_id=99)
    return Expected("TXI-3", TXN_ENTRIES, pos, "error")


@FAULTS.plants("clean", "txn-0")
def txn_index_names_a_data_batch(log_dir: Path) -> Expected:
    _insert_aborted(log_dir, (0, 19, 0, 5, 1))
    return Expected("TXI-3", TXN_ENTRIES, 0, "error")


@FAULTS.plants("clean", "txn-0")
def txn_index_entry_missing(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / TXN_ENTRIES, TXN_INDEX)
    layout.write_entries(log_dir / TXN_ENTRIES, TXN_INDEX, rows[:6] + rows[7:])
    return Expected("TXI-4", TXN_ENTRIES, severity="error")


@FAULTS.plants("clean", "txn-0")
def txn_index_missing(log_dir: Path) -> Expected:
    (log_dir / TXN_ENTRIES).unlink()
    return Expected("TXI-4", TXN_ENTRIES, severity="error")


@FAULTS.plants("crash", "txn-0")
def txn_index_entry_missing_that_recovery_mends(log_dir: Path) -> Expected:
    rows = layout.entries_of(log_dir / TXN_ENTRIES, TXN_INDEX)
    layout.write_entries(log_dir / TXN_ENTRIES, TXN_INDEX, rows[:6] + rows[7:])
    return Expected("TXI-4", TXN_ENTRIES, severity="note")


def _turn_marker(log_dir: Path, offset: int, kind: int) -> None:
    """Make a marker say the opposite, with a right checksum."""
    batches = layout.walk((log_dir / f"{TXN}.log").read_bytes())
    index = next(at for at, each in enumerate(batches) if each.base_offset == offset)
    layout.edit_body(log_dir / f"{TXN}.log", index, 61 + 5 + 2, bytes([0, kind]))


@FAULTS.plants("clean", "txn-0")
def commit_turned_into_abort(log_dir: Path) -> Expected:
    _turn_marker(log_dir, 24, layout.ABORT)
    return Expected("TXI-4", TXN_ENTRIES, severity="error")


@FAULTS.plants("clean", "txn-0")
def abort_turned_into_commit(log_dir: Path) -> Expected:
    _turn_marker(log_dir, 45, layout.COMMIT)
    return Expected("TXI-5", TXN_ENTRIES, 0, "error")


@FAULTS.plants("clean", "txn-0")
def txn_index_hides_a_committed_transaction(log_dir: Path) -> Expected:
    _insert_aborted(log_dir, (0, 19, 0, 24, 1))
    return Expected("TXI-5", TXN_ENTRIES, 0, "error")


@FAULTS.plants("clean", "txn-0")
def txn_index_first_offset_moved(log_dir: Path) -> Expected:
    pos = _edit_aborted(log_dir, 3, first_offset=54)
    return Expected("TXI-6", TXN_ENTRIES, pos, "warning")


@FAULTS.plants("clean", "txn-0")
def txn_index_stable_offset_negative(log_dir: Path) -> Expected:
    pos = _edit_aborted(log_dir, 2, last_stable_offset=-1)
    return Expected("TXI-7", TXN_ENTRIES, pos + 26, "warning")


@FAULTS.plants("clean", "txn-0")
def txn_index_stable_offset_beyond_the_log(log_dir: Path) -> Expected:
    pos = _edit_aborted(log_dir, 3, last_stable_offset=330)
    return Expected("TXI-7", TXN_ENTRIES, pos + 26, "warning")
