"""The states, one function each: it gets an empty directory and returns the log dir (or their parent)."""

from __future__ import annotations

import re
import shutil
import struct
import time
from typing import TYPE_CHECKING

from tests.cases.files import (
    T0,
    HandLogDir,
    batch,
    big_batch,
    singles,
    time_index,
    unpack_golden,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ID = "a" * 32  # of a directory with a suffix
FAR = 2**31 + 10  # too far from 0 for an index
DAY_MS = 86_400_000

STATES: dict[str, Callable[[Path], Path]] = {}


def _state(build: Callable[[Path], Path]) -> Callable[[Path], Path]:
    STATES[build.__name__.replace("_", "-")] = build
    return build


@_state
def backward_offsets(out: Path) -> Path:
    made = HandLogDir(out)
    offsets = [*range(10), *range(5, 9), *range(10, 15)]
    made.segment(0, map(big_batch, offsets))
    made.checkpoints(high_watermark=15, recovery_point=0)
    made.epochs()
    made.crash()
    return made.path


@_state
def cleaner_dead(out: Path) -> Path:
    made = HandLogDir(out)
    made.remove(part="c-0")
    for base in range(0, 1000, 50):
        batches = [batch(base + i, [(b"same", b"x" * 60)]) for i in range(50)]
        end = base + 50
        times = time_index([(T0 + end - 1, end - 1)], base)
        made.segment(base, batches, times=times, part="c-0")
        made.snapshot(end, part="c-0")
    made.checkpoints(high_watermark=1000, recovery_point=1000, part="c-0")
    made.epochs(part="c-0")
    return made.path


@_state
def cluster_id_two_dirs(out: Path) -> Path:
    d = unpack_golden(out, "kafka-4.3.1-two-dirs")
    path = d / "two/meta.properties"
    path.write_text(re.sub("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", path.read_text()))
    return d


@_state
def delete_dir_half_gone(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed(singles(0, 30), 30)
    left = made.path / f"gone-0.{'b' * 32}-delete"
    left.mkdir()
    (left / "00000000000000000005.index").touch()
    return made.path


@_state
def duplicate_dirs(out: Path) -> Path:
    d = unpack_golden(out, "kafka-4.3.1-two-dirs")
    shutil.copytree(d / "one/plain-1", d / "two/plain-1")
    return d


@_state
def first_sequence_not_zero(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed([batch(at, n=5, pid=7, epoch=0, seq=17 + at) for at in (0, 5)], 10)
    made.snapshot(10, [(7, 0, 26, 9, 4, T0 + 9, -1, -1)])
    return made.path


@_state
def future_replica_same_dir(out: Path) -> Path:
    made = HandLogDir(out)
    shutil.copytree(made.path / "t-0", made.path / f"t-0.{ID}-future")
    made.closed(singles(0, 30), 30)
    return made.path


@_state
def lost_middle_segment(out: Path) -> Path:
    made = HandLogDir(out)
    made.remove()
    for base in (0, 10, 20):
        end = base + 10
        made.segment(base, singles(base, end), times=time_index([(T0 + end - 1, end - 1)], base))
        made.snapshot(end)
    made.remove(10)
    made.checkpoints(high_watermark=30, recovery_point=30)
    made.epochs()
    return made.path


@_state
def node_id_mismatch(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed(singles(0, 30), 30)
    text = f"process.roles=broker,controller\nnode.id=7\nlog.dirs={made.path}\n"
    (out / "server.properties").write_text(text)
    return made.path


@_state
def offset_overflow(out: Path) -> Path:
    made = HandLogDir(out)
    made.segment(0, [*singles(0, 5), *singles(FAR, FAR + 5)], part="c-0")
    made.checkpoints(high_watermark=FAR + 5, recovery_point=0, part="c-0")
    made.epochs(part="c-0")
    made.crash()
    return made.path


@_state
def old_records_retention(out: Path) -> Path:
    made = HandLogDir(out)
    made.remove()
    old = int(time.time() * 1000) - 60 * DAY_MS
    for base in (0, 10):
        end = base + 10
        batches = [batch(at, ts=old + at) for at in range(base, end)]
        made.segment(base, batches, times=time_index([(old + end - 1, end - 1)], base))
        made.snapshot(end)
    made.checkpoints(high_watermark=20, recovery_point=20)
    made.epochs()
    return made.path


@_state
def open_txn_missing_in_snapshot(out: Path) -> Path:
    made = HandLogDir(out)
    opened = [batch(at, pid=7 + at, epoch=0, seq=0, txn=True) for at in (0, 1)]
    made.closed([*opened, *singles(2, 7)], 7)
    made.snapshot(7, [(8, 0, 0, 1, 0, T0 + 1, -1, 1)])
    return made.path


@_state
def clean_two_dirs(out: Path) -> Path:
    return unpack_golden(out, "kafka-4.3.1-two-dirs")


@_state
def salvage_drops_records(out: Path) -> Path:
    made = HandLogDir(out)
    others = [batch(5 + i, [(b"other", b"X%d" % i)]) for i in range(4)]
    made.segment(0, [*singles(0, 10), *others, *singles(10, 15)])
    made.checkpoints(high_watermark=15, recovery_point=0)
    made.epochs()
    made.crash()
    return made.path


@_state
def sequence_gap(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed([batch(i, pid=7, epoch=0, seq=i if i < 5 else i + 5) for i in range(10)], 10)
    made.snapshot(10, [(7, 0, 14, 9, 0, T0 + 9, -1, -1)])
    return made.path


@_state
def size_beyond_file(out: Path) -> Path:
    made = HandLogDir(out)
    damaged = bytearray(batch(5))
    struct.pack_into(">i", damaged, 8, 1 << 24)
    made.closed([*singles(0, 5), bytes(damaged), *singles(6, 10)], 10)
    return made.path


@_state
def stray_holds_data(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed(singles(0, 30), 30)
    (made.path / "t-0").rename(made.path / f"t-0.{ID}-stray")
    return made.path


@_state
def swap_of_a_split(out: Path) -> Path:
    made = HandLogDir(out)
    made.remove()
    low, high = singles(0, 5), singles(FAR, FAR + 5)
    made.file(f"{0:020d}.log.deleted").write_bytes(b"".join([*low, *high]))
    made.file(f"{0:020d}.log.swap").write_bytes(b"".join(low))
    made.file(f"{FAR:020d}.log.swap").write_bytes(b"".join(high))
    made.checkpoints(high_watermark=FAR + 5, recovery_point=0)
    made.epochs()
    made.crash()
    return made.path


@_state
def unknown_metadata_record(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed(singles(0, 30), 30)
    value = varint(1, zigzag=False) + varint(999, zigzag=False) + varint(0, zigzag=False) + b"\0"
    with made.file(f"{0:020d}.log", "__cluster_metadata-0").open("ab") as log:
        log.write(batch(86, [(None, value)], leader_epoch=1))
    return made.path


@_state
def wrong_segment_name(out: Path) -> Path:
    made = HandLogDir(out)
    made.remove()
    made.segment(100, singles(0, 30))
    made.checkpoints(high_watermark=30, recovery_point=0)
    made.epochs()
    made.crash()
    return made.path


@_state
def zero_tail(out: Path) -> Path:
    made = HandLogDir(out)
    made.closed([*singles(0, 30), b"\0" * 4096], 30, clean=False)
    return made.path
