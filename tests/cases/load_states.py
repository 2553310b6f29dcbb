"""States of one partition directory that decide how a broker loads it, as their files.

They are those of Kafka's own tests of loading (LogLoaderTest, UnifiedLogTest, LogSegmentTest,
ProducerStateManagerTest, LogCleanerTest), of public bug reports, and their neighbours. Every state is
made after a clean stop and after a crash, with the recovery point below, inside of and above the log.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from tests.cases.files import (
    T0,
    batch,
    big_batch,
    checkpoint,
    offset_index,
    singles,
    snapshot,
    time_index,
    txn_index,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FAR = 2**31 + 10  # too far from 0 for an index
Files = dict[str, bytes]


class LoadState(NamedTuple):
    """The files of a partition, and what the checkpoints of its log dir say of it."""

    files: Files
    log_start: int | None = None
    recovery_point: int = 0
    is_clean: bool = False


_MADE: dict[str, Callable[[], LoadState]] = {}


def _log(
    base: int,
    batches: Iterable[bytes],
    *,
    index: bytes | None = b"",
    times: bytes | None = b"",
    suffix: str = "",
) -> Files:
    stem = f"{base:020d}"
    found = {f"{stem}.log{suffix}": b"".join(batches)}
    for name, data in ((".index", index), (".timeindex", times)):
        if data is not None:
            found[f"{stem}{name}{suffix}"] = data
    return found


def _edited(data: bytes, pos: int, new: bytes) -> bytes:
    return data[:pos] + new + data[pos + len(new) :]


def _flip(data: bytes, pos: int) -> bytes:
    return _edited(data, pos, bytes([data[pos] ^ 1]))


def _bigs(offsets: Iterable[int]) -> list[bytes]:
    return [big_batch(each) for each in offsets]


def _late(offset: int, size: int = 20) -> bytes:
    """A batch whose time is later than that of any other."""
    return batch(offset, [(b"k", b"v" * size)], ts=T0 + 10**6 + offset)


def _three(middle: Sequence[bytes] | None = None, *, bigs: bool = False) -> Files:
    """Three segments of ten batches."""
    make = _bigs if bigs else lambda offsets: [batch(each) for each in offsets]
    return {
        **_log(0, make(range(10))),
        **_log(10, make(range(10, 20)) if middle is None else middle),
        **_log(20, make(range(20, 30))),
    }


def _snap(offset: int, *entries: tuple[int, ...]) -> Files:
    return {f"{offset:020d}.snapshot": snapshot(entries)}  # type: ignore[arg-type]


def _entry(pid: int, last: int, txn: int = -1, seq: int = 0) -> tuple[int, ...]:
    return (pid, 0, seq, last, 0, T0 + last, -1, txn)


def _txn(offset: int, pid: int, seq: int = 0, **more: int) -> bytes:
    return batch(offset, pid=pid, epoch=0, seq=seq, txn=True, **more)


def _end(offset: int, pid: int, kind: str = "abort") -> bytes:
    return batch(offset, pid=pid, epoch=0, control=kind)


def _control(offset: int, key: bytes | None, value: bytes | None, pid: int = 7) -> bytes:
    """A control batch with any record."""
    import crc32c

    data = bytearray(batch(offset, [(key, value)], pid=pid, epoch=0, txn=True))
    data[22] |= 32
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def _header(data: bytes, pos: int, form: str, value: int) -> bytes:
    """Change a field under the checksum, and mend that."""
    import crc32c

    found = bytearray(data)
    struct.pack_into(form, found, pos, value)
    struct.pack_into(">I", found, 17, crc32c.crc32c(bytes(found[21:])))
    return bytes(found)


_BACK = [*range(10), *range(5, 9), *range(10, 15)]
_TEN = b"".join(singles(0, 10))
_LEN = [len(each) for each in singles(0, 10)]

FILES: dict[str, Files] = {
    # --- order of offsets
    "empty": _log(0, []),
    "ten": _log(0, singles(0, 10)),
    "ten-big": _log(0, _bigs(range(10))),
    "three": _three(),
    "three-big": _three(bigs=True),
    "back-big": _log(0, _bigs(_BACK)),
    "back-small": _log(0, map(batch, _BACK)),
    "back-big-last": _log(0, _bigs([*range(10), *range(5, 9)])),
    "back-small-last": _log(0, map(batch, [*range(10), *range(5, 9)])),
    "back-big-first": {**_log(0, _bigs(_BACK)), **_log(15, _bigs(range(15, 20)))},
    "back-big-middle": _three(_bigs([10, 11, 12, 11, 13, 14])),
    "back-big-end": {**_log(0, singles(0, 10)), **_log(10, _bigs([10, 11, 12, 11, 13]))},
    "back-no-index": _log(0, _bigs(_BACK), index=None),
    "back-middle-no-index": {
        **_log(0, singles(0, 10)),
        **_log(10, _bigs([10, 11, 12, 11, 13]), index=None),
        **_log(20, singles(20, 25)),
    },
    "twice-big": _log(0, _bigs([0, 1, 2, 2, 3])),
    "twice-small": _log(0, map(batch, [0, 1, 2, 2, 3])),
    "back-to-zero-big": _log(0, _bigs([0, 1, 2, 0, 1, 2])),
    "back-to-zero-small": _log(0, map(batch, [0, 1, 2, 0, 1, 2])),
    "back-snapshots": {**_log(0, _bigs(_BACK)), **_snap(5), **_snap(15)},
    "back-time-last": _log(0, [*_bigs(range(10)), *map(_late, range(5, 9))]),
    "back-time-inside": _log(0, [*_bigs(range(10)), _late(5), big_batch(11), big_batch(12)]),
    "back-time-first": _log(0, [_late(0, 5000), *_bigs(range(1, 6))]),
    "back-time-same": _log(0, [*_bigs(range(4)), _late(3)]),
    "back-time-no-index": _log(0, [*_bigs(range(10)), *map(_late, range(5, 9))], index=None),
    "overlap": {**_log(0, singles(0, 15)), **_log(10, singles(10, 20))},
    "overlap-short": {**_log(0, singles(0, 15)), **_log(10, singles(10, 13))},
    "overlap-big": {**_log(0, _bigs(range(15))), **_log(10, _bigs(range(10, 20)))},
    "gap-inside": _log(0, [*singles(0, 5), *singles(50, 55)]),
    "gap-between": {**_log(0, singles(0, 5)), **_log(50, singles(50, 55))},
    # --- names
    "name-above": _log(100, singles(0, 30)),
    "name-above-big": _log(100, _bigs(range(10))),
    "name-inside": _log(10, singles(0, 30)),
    "name-below": _log(0, singles(100, 130)),
    "name-middle": {
        **_log(0, singles(0, 10)),
        **_log(15, singles(10, 20)),
        **_log(20, singles(20, 30)),
    },
    "name-last": {**_log(0, singles(0, 10)), **_log(50, singles(10, 20))},
    "name-last-no-index": {**_log(0, singles(0, 10)), **_log(50, singles(10, 20), index=None)},
    "name-above-far": _log(100, [*singles(0, 5), *singles(FAR + 100, FAR + 105)]),
    "begins-below": _log(10, [batch(8, n=5), *singles(13, 20)]),
    "ends-below": _log(10, [batch(5, n=3), *singles(10, 20)]),
    "negative-first": _log(0, [batch(-5), *singles(0, 5)]),
    "negative-inside": _log(0, [*singles(0, 5), batch(-5), *singles(5, 10)]),
    "delta-negative": _log(0, [*singles(0, 5), _header(batch(5), 23, ">i", -3), batch(6)]),
    "delta-below-base": _log(0, [*singles(0, 2), _header(batch(2), 23, ">i", -9), batch(3)]),
    "offset-largest": _log(0, [*singles(0, 5), batch(2**31 - 1)]),
    "offset-over": _log(0, [*singles(0, 5), batch(2**31)]),
    # --- overflow
    "far": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
    "far-no-index": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5)], index=None),
    "far-three": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5), *singles(2 * FAR, 2 * FAR + 5)]),
    "far-twice": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(FAR + 5, [*singles(FAR + 5, FAR + 9), *singles(3 * FAR, 3 * FAR + 5)]),
    },
    "far-first": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(FAR + 5, singles(FAR + 5, FAR + 9)),
    },
    "far-middle": {
        **_log(0, singles(0, 5)),
        **_log(5, [*singles(5, 9), *singles(FAR, FAR + 5)]),
        **_log(FAR + 5, singles(FAR + 5, FAR + 9)),
    },
    "far-same-base": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(FAR, singles(FAR + 5, FAR + 9)),
    },
    "far-torn": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5), b"\0\1\2" * 5]),
    "far-half": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5), batch(FAR + 5)[:50]]),
    "far-zeros": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5), bytes(100)]),
    "far-bad-before": _log(
        0, [*singles(0, 3), _flip(batch(3), 65), batch(4), *singles(FAR, FAR + 5)]
    ),
    "far-bad-behind": _log(
        0, [*singles(0, 5), batch(FAR), _flip(batch(FAR + 1), 65), batch(FAR + 2)]
    ),
    "far-back": _log(0, [*singles(0, 5), *singles(FAR, FAR + 5), *singles(5, 9)]),
    "far-snapshots": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_snap(5),
        **_snap(FAR + 5),
    },
    "far-txn": _log(0, [_txn(0, 7), batch(1), _txn(FAR, 7, 1), _end(FAR + 1, 7), batch(FAR + 2)]),
    "far-txn-within": _log(0, [_txn(0, 7), _end(1, 7), _txn(FAR, 7, 1), _end(FAR + 1, 7)]),
    "far-big": _log(0, [*_bigs(range(5)), *_bigs(range(FAR, FAR + 5))]),
    "far-epochs": {
        **_log(0, [batch(0), batch(1, leader_epoch=2), batch(FAR, leader_epoch=3)]),
        "leader-epoch-checkpoint": checkpoint([(0, 0)]),
    },
    "far-swapped-names": _log(5, [*singles(0, 5), *singles(FAR, FAR + 5)]),
    "far-again": _log(
        0, [*singles(0, 3), *singles(FAR, FAR + 3), *singles(0, 3), *singles(FAR + 3, FAR + 5)]
    ),
    "far-many": _log(0, [batch(at * 2**30) for at in range(9)]),
    "far-two-batches": _log(0, [batch(0), batch(2**40)]),
    "far-only": _log(0, [batch(2**31)]),
    "far-lasts": _log(0, [batch(0), batch(2**31 - 3, n=5), batch(2**31 + 2)]),
    "far-back-inside": _log(0, [*_bigs([0, 1, 2, 1]), *singles(FAR, FAR + 2)]),
    "far-compacted": _log(0, [batch(0, n=2, offsets=[0, 3], last=5), *singles(FAR, FAR + 2)]),
    "far-second-below": _log(0, [batch(0), batch(FAR), batch(3)]),
    # --- swap, cleaned, deleted
    "swap-split": {
        f"{0:020d}.log.deleted": b"".join([*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(0, singles(0, 5), suffix=".swap"),
        **_log(FAR, singles(FAR, FAR + 5), suffix=".swap"),
    },
    "swap-split-bare": {
        f"{0:020d}.log.deleted": b"".join([*singles(0, 5), *singles(FAR, FAR + 5)]),
        f"{0:020d}.log.swap": b"".join(singles(0, 5)),
        f"{FAR:020d}.log.swap": b"".join(singles(FAR, FAR + 5)),
    },
    "split-cleaned": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(0, singles(0, 5), suffix=".cleaned"),
        **_log(FAR, singles(FAR, FAR + 5), suffix=".cleaned"),
    },
    "split-mixed": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(0, singles(0, 5), suffix=".cleaned"),
        **_log(FAR, singles(FAR, FAR + 5), suffix=".swap"),
    },
    "split-source-there": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)]),
        **_log(0, singles(0, 5), suffix=".swap"),
        **_log(FAR, singles(FAR, FAR + 5), suffix=".swap"),
    },
    "split-one-renamed": {
        **_log(0, singles(0, 5)),
        **_log(FAR, singles(FAR, FAR + 5), suffix=".swap"),
    },
    "swap-compacted": {
        **_three(),
        **_log(0, [batch(3), batch(14)], suffix=".swap"),
        **_snap(10),
        **_snap(20),
    },
    "swap-bare": {**_three(), f"{0:020d}.log.swap": b"".join([batch(3), batch(14)])},
    "swap-half-renamed": {
        **_log(10, singles(10, 20)),
        **_log(20, singles(20, 30)),
        f"{0:020d}.log": b"".join([batch(3), batch(14)]),
        f"{0:020d}.index.swap": b"",
        f"{0:020d}.timeindex.swap": b"",
    },
    "swap-index-only": {**_three(), f"{10:020d}.index.swap": offset_index([(15, 300)], 10)},
    "swap-index-orphan": {**_log(0, singles(0, 5)), f"{10:020d}.index.swap": b""},
    "swap-torn": {**_three(), **_log(0, [batch(3), batch(14)[:50]], suffix=".swap")},
    "swap-zeros": {**_three(), **_log(0, [batch(3), bytes(100)], suffix=".swap")},
    "swap-flipped": {**_three(), **_log(0, [batch(3), _flip(batch(14), 65)], suffix=".swap")},
    "swap-empty": {**_three(), **_log(0, [], suffix=".swap")},
    "swap-above-cleaned": {
        **_three(),
        **_log(0, [batch(3)], suffix=".cleaned"),
        **_log(10, [batch(14)], suffix=".swap"),
    },
    "swap-below-cleaned": {
        **_three(),
        **_log(0, [batch(3)], suffix=".swap"),
        **_log(10, [batch(14)], suffix=".cleaned"),
    },
    "swap-txnindex": {
        **_log(0, [_txn(0, 7), _end(1, 7), batch(2)]),
        **_log(0, [_txn(0, 7), _end(1, 7)], suffix=".swap"),
        f"{0:020d}.txnindex.swap": txn_index([(7, 0, 1, 2)]),
    },
    "swap-last": {**_three(), **_log(20, [batch(22), batch(25)], suffix=".swap")},
    "swap-overflow": {
        **_log(0, [*singles(0, 5), *singles(FAR, FAR + 5)], suffix=".swap"),
    },
    "swap-backward": {**_three(), **_log(0, _bigs([0, 1, 2, 1, 3]), suffix=".swap")},
    "swap-name-above": {**_three(), **_log(10, singles(0, 5), suffix=".swap")},
    "cleaned-only": {**_three(), **_log(0, [batch(3)], suffix=".cleaned")},
    "deleted-only": {
        f"{0:020d}.log.deleted": _TEN,
        f"{0:020d}.index.deleted": b"",
        f"{0:020d}.snapshot.deleted": snapshot(),
    },
    "deleted-first": {
        f"{0:020d}.log.deleted": _TEN,
        **_log(10, singles(10, 20)),
    },
    # --- indexes
    "no-index-first": {**_three(), f"{0:020d}.index": b""} | {},
    "index-stale": _log(0, singles(0, 10), index=offset_index([(5, 360), (99, 400)])),
    "index-beyond-file": _log(0, singles(0, 10), index=offset_index([(5, 360), (8, 9999)])),
    "index-mid-batch": _log(0, singles(0, 10), index=offset_index([(5, 365)])),
    "index-negative-pos": _log(0, singles(0, 10), index=offset_index([(5, -8)])),
    "index-negative-offset": _log(0, singles(0, 10), index=offset_index([(-3, 72)])),
    "index-odd-size": _log(0, singles(0, 10), index=offset_index([(5, 360)]) + b"\0\0\0"),
    "index-zeros": _log(0, singles(0, 10), index=offset_index([(5, 360)]) + bytes(80)),
    "index-unsorted": _log(0, singles(0, 10), index=offset_index([(8, 576), (3, 216)])),
    "index-low-pos": _log(0, singles(0, 10), index=offset_index([(5, 0)])),
    "index-of-empty": _log(0, [], index=offset_index([(5, 0)])),
    "index-garbage": _log(0, singles(0, 10), index=bytes(range(64))),
    "times-garbage": _log(0, singles(0, 10), times=bytes(range(60))),
    "times-missing": _log(0, singles(0, 10), times=None),
    "times-beyond": _log(0, singles(0, 10), times=time_index([(T0 + 99, 99)])),
    "both-missing": _log(0, singles(0, 10), index=None, times=None),
    "orphan-index": {**_log(0, singles(0, 5)), f"{50:020d}.index": b"", f"{60:020d}.txnindex": b""},
    "txnindex-low": {
        **_log(10, singles(10, 20)),
        f"{10:020d}.txnindex": txn_index([(7, 0, 5, 6)]),
    },
    "txnindex-version": {
        **_log(0, singles(0, 5)),
        f"{0:020d}.txnindex": struct.pack(">hqqqq", 1, 7, 0, 1, 2),
    },
    "txnindex-odd": {**_log(0, singles(0, 5)), f"{0:020d}.txnindex": b"\0" * 40},
    "txnindex-idle": {**_log(0, singles(0, 5)), f"{0:020d}.txnindex": txn_index([(7, 0, 1, 2)])},
    # --- ends
    **{
        f"tail-{name}": _log(0, [*singles(0, 10), tail])
        for name, tail in {
            "5": b"\1\2\3\4\5",
            "17": bytes(range(17)),
            "17-zeros": bytes(17),
            "18-zeros": bytes(18),
            "zeros": bytes(4096),
            "junk": b"\1\2" * 300,
            "half": batch(10)[:50],
            "header": batch(10)[:61],
            "size-5": _edited(batch(10), 8, struct.pack(">i", 5)),
            "size-13": _edited(batch(10), 8, struct.pack(">i", 13)),
            "size-14": _edited(batch(10), 8, struct.pack(">i", 14)),
            "size-48": _edited(batch(10), 8, struct.pack(">i", 48)),
            "size-49": _edited(batch(10), 8, struct.pack(">i", 49)),
            "size-negative": _edited(batch(10), 8, struct.pack(">i", -1)),
            "size-huge": _edited(batch(10), 8, struct.pack(">i", 1 << 30)),
            "size-largest": _edited(batch(10), 8, struct.pack(">i", 2**31 - 1)),
            "magic-9": _edited(batch(10), 16, b"\x09"),
            "magic-1": _edited(batch(10), 16, b"\x01"),
            "magic-negative": _edited(batch(10), 16, b"\xff"),
            "flip": _flip(batch(10), 65),
        }.items()
    },
    **{
        f"inside-{name}": _log(0, [*singles(0, 5), data, *singles(6, 10)])
        for name, data in {
            "flip": _flip(batch(5), 65),
            "size-5": _edited(batch(5), 8, struct.pack(">i", 5)),
            "size-beyond": _edited(batch(5), 8, struct.pack(">i", 1 << 24)),
            "size-into-next": _edited(batch(5), 8, struct.pack(">i", 70)),
            "size-two": _edited(batch(5), 8, struct.pack(">i", 132)),
            "magic-9": _edited(batch(5), 16, b"\x09"),
            "zeros": bytes(72),
        }.items()
    },
    "first-flip": _log(0, [_flip(batch(0), 65), *singles(1, 5)]),
    "middle-flip": _three([*singles(10, 15), _flip(batch(15), 65), *singles(16, 20)]),
    "middle-first-flip": _three([_flip(batch(10), 65), *singles(11, 20)]),
    "middle-zeros": _three([*singles(10, 20), bytes(100)]),
    "middle-empty": _three([]),
    "last-empty": {**_log(0, singles(0, 10)), **_log(10, [])},
    "empties": {**_log(0, []), **_log(10, []), **_log(20, singles(20, 25))},
    # --- producers
    "idem": _log(0, [batch(at, pid=7, epoch=0, seq=at) for at in range(10)]),
    "idem-snapshot": {
        **_log(0, [batch(at, pid=7, epoch=0, seq=at) for at in range(10)]),
        **_snap(10, _entry(7, 9, seq=9)),
    },
    "idem-early-snapshot": {
        **_log(0, [batch(at, pid=7, epoch=0, seq=at) for at in range(10)]),
        **_snap(5, _entry(7, 4, seq=4)),
    },
    "snapshot-bad": {
        **_log(0, [batch(at, pid=7, epoch=0, seq=at) for at in range(10)]),
        **_snap(5, _entry(7, 4, seq=4)),
        f"{10:020d}.snapshot": _flip(snapshot([_entry(7, 9, seq=9)]), 20),  # type: ignore[list-item]
    },
    "snapshot-empty-file": {**_log(0, singles(0, 10)), f"{10:020d}.snapshot": b""},
    "snapshot-version": {
        **_log(0, singles(0, 10)),
        f"{10:020d}.snapshot": _edited(snapshot(), 1, b"\2"),
    },
    "snapshot-beyond": {**_log(0, singles(0, 10)), **_snap(10), **_snap(99)},
    "snapshot-strays": {**_three(), **_snap(3), **_snap(10), **_snap(15), **_snap(20), **_snap(30)},
    "snapshot-zero": {**_log(0, singles(0, 10)), **_snap(0), **_snap(10)},
    "snapshot-twice-same": {
        **_log(0, singles(0, 10)),
        **_snap(10, _entry(7, 3), _entry(7, 5, seq=2)),
    },
    "snapshot-open": {
        **_log(0, [_txn(0, 7), _txn(1, 8), *singles(2, 7)]),
        **_snap(7, _entry(8, 1, 1)),
    },
    "snapshot-open-old": {
        **_log(0, [_txn(0, 7), _txn(1, 8), *singles(2, 7), _end(7, 7), batch(8)]),
        **_snap(7, _entry(8, 1, 1)),
    },
    "snapshot-open-beyond": {**_log(0, singles(0, 10)), **_snap(10, _entry(7, 3, 50))},
    "txn-open": _log(0, [batch(0), _txn(1, 7), batch(2)]),
    "txn-aborted": _log(0, [_txn(0, 7), _end(1, 7), _txn(2, 7, 1), _end(3, 7, "commit")]),
    "txn-interleaved": _log(
        0, [_txn(0, 7), _txn(1, 8), _end(2, 8), _txn(3, 7, 1), _end(4, 7), batch(5)]
    ),
    "txn-over-segments": {
        **_log(0, [_txn(0, 7), batch(1)]),
        **_log(2, [batch(2), _end(3, 7), _txn(4, 7, 1)]),
        **_log(5, [_end(5, 7), batch(6)]),
    },
    "marker-idle": _log(0, [batch(0), _end(1, 7), batch(2)]),
    "broken-out": _log(0, [_txn(0, 7), batch(1, pid=7, epoch=0, seq=1), _end(2, 7)]),
    "broken-out-covered": {
        **_log(0, [_txn(0, 7), batch(1, pid=7, epoch=0, seq=1), _end(2, 7)]),
        **_snap(3, _entry(7, 2)),
    },
    "abort-twice-back": _log(0, [_txn(0, 7), _end(1, 7), _txn(0, 7, 1), _end(1, 7), batch(2)]),
    "abort-back": _log(0, [_txn(5, 7), _end(6, 7), _txn(2, 8), _end(3, 8), batch(7)]),
    "commit-back": _log(
        0, [_txn(5, 7), _end(6, 7, "commit"), _txn(2, 8), _end(3, 8, "commit"), batch(7)]
    ),
    "txn-same-first": _log(0, [_txn(0, 7), _txn(0, 8), _end(1, 7), _end(2, 8), batch(3)]),
    "txn-same-first-commit": _log(
        0, [_txn(0, 7), _txn(0, 8), _end(1, 7, "commit"), _end(2, 8, "commit"), batch(3)]
    ),
    "control-empty": _log(0, [_txn(0, 7), _header(_end(1, 7), 57, ">i", 0)[:61], batch(2)]),
    "control-key-short": _log(0, [_txn(0, 7), _control(1, b"\0", b""), batch(2)]),
    "control-key-none": _log(0, [_txn(0, 7), _control(1, None, b"\0\0\0\0\0\0"), batch(2)]),
    "control-type-9": _log(0, [_txn(0, 7), _control(1, b"\0\0\0\x09", b"\0\0\0\0\0\1"), batch(2)]),
    "control-type-2": _log(0, [_txn(0, 7), _control(1, b"\0\0\0\2", b"\0\0\0\0\0\1"), batch(2)]),
    "control-value-short": _log(0, [_txn(0, 7), _control(1, b"\0\0\0\0", b"\0\0"), batch(2)]),
    "control-value-none": _log(0, [_txn(0, 7), _control(1, b"\0\0\0\0", None), batch(2)]),
    "control-version": _log(0, [_txn(0, 7), _control(1, b"\0\5\0\0", b"\0\5\0\0\0\1"), batch(2)]),
    "control-negative": _log(
        0, [_txn(0, 7), _control(1, b"\xff\xff\0\0", b"\0\0\0\0\0\1"), batch(2)]
    ),
    "control-value-negative": _log(
        0, [_txn(0, 7), _control(1, b"\0\0\0\0", b"\xff\xff\0\0\0\1"), batch(2)]
    ),
    "control-last": _log(0, [_txn(0, 7), _control(1, b"\0", b"")]),
    "epoch-back": _log(
        0, [batch(0, pid=7, epoch=3, seq=0), batch(1, pid=7, epoch=1, seq=0), batch(2)]
    ),
    "sequence-gap": _log(0, [batch(0, pid=7, epoch=0, seq=5), batch(1, pid=7, epoch=0, seq=99)]),
    "pid-no-epoch": _log(0, [batch(0, pid=7, epoch=-1, seq=-1), batch(1)]),
    # --- leader epochs
    "epochs": {
        **_log(0, [batch(at, leader_epoch=at // 3) for at in range(10)]),
        "leader-epoch-checkpoint": checkpoint([(0, 0), (1, 3)]),
    },
    "epochs-back": _log(0, [batch(0, leader_epoch=5), batch(1, leader_epoch=3), batch(2)]),
    "epochs-ahead": {
        **_log(0, singles(0, 10)),
        "leader-epoch-checkpoint": checkpoint([(0, 0), (4, 99)]),
    },
    "epochs-negative": {
        **_log(0, singles(0, 10)),
        "leader-epoch-checkpoint": checkpoint([(-1, 0)]),
    },
    "epochs-words": {**_log(0, singles(0, 10)), "leader-epoch-checkpoint": b"0\n1\nx y\n"},
    "epochs-of-back": {
        **_log(
            0,
            [
                big_batch(0),
                *(batch(at, [(b"k", bytes(5000))], leader_epoch=4) for at in (1, 2, 1, 3)),
            ],
        ),
        "leader-epoch-checkpoint": checkpoint([(0, 0)]),
    },
    # --- nothing
    "nothing": {},
    "only-snapshot": _snap(10),
    "only-index": {f"{0:020d}.index": offset_index([(5, 360)])},
}
FILES["no-index-middle-flip"] = _three([*singles(10, 15), _flip(batch(15), 65)])
FILES["no-index-middle-flip"].pop(f"{10:020d}.index")
FILES["no-index-first"].pop(f"{0:020d}.index")
for _name, _base in (("middle", 10), ("last", 20)):
    FILES[f"no-index-{_name}"] = _three()
    FILES[f"no-index-{_name}"].pop(f"{_base:020d}.index")


def _ends(files: Files) -> list[int]:
    """Base offsets of the segments."""
    return sorted(int(name[:20]) for name in files if name.endswith(".log"))


def load_states() -> dict[str, LoadState]:
    """Every state in all that a stop and the checkpoints can say of it."""
    found = {}
    for name, own in FILES.items():
        files = {"leader-epoch-checkpoint": checkpoint([(0, 0)]), **own}
        bases = _ends(files)
        found[f"{name}.clean"] = LoadState(files, None, 10**6, is_clean=True)
        found[f"{name}.crash"] = LoadState(files)
        if len(bases) > 1:
            found[f"{name}.middle"] = LoadState(files, None, bases[1] + 1)
        found[f"{name}.above"] = LoadState(files, None, 10**12)
    for name, log_start in (
        ("ten", 5),
        ("ten", 10),
        ("ten", 11),
        ("three", 15),
        ("three", 30),
        ("three", 31),
        ("back-big", 7),
        ("back-small-last", 9),
        ("back-small-last", 10),
        ("far", 3),
        ("far", FAR + 2),
        ("name-above", 50),
        ("name-above", 110),
        ("idem", 5),
        ("txn-open", 2),
        ("txn-aborted", 2),
        ("nothing", 7),
        ("snapshot-strays", 12),
        ("middle-flip", 18),
        ("begins-below", 11),
        ("swap-split", 2),
        ("swap-compacted", 4),
    ):
        files = {"leader-epoch-checkpoint": checkpoint([(0, 0)]), **FILES[name]}
        found[f"{name}.from{log_start}.clean"] = LoadState(files, log_start, 10**6, is_clean=True)
        found[f"{name}.from{log_start}.crash"] = LoadState(files, log_start)
    return found
