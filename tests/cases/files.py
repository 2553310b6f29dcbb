"""Write the files of a Kafka log by hand. Nothing here imports anything of eoctl."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Record = tuple[bytes | None, bytes | None]

T0 = 1795229940000  # of offset 0, in ms
TXN, CONTROL = 16, 32  # bits of a batch's attributes
BASE = Path(__file__).parent / "base.tar.xz"
GOLDEN = Path(__file__).parents[1] / "golden"


# --- bytes ----------------------------------------------------------------------------------------


def varint(value: int, *, zigzag: bool = True) -> bytes:
    """Write a varint as records have them; `zigzag=False` as metadata records have them."""
    if zigzag:
        value = (value << 1) ^ (value >> 63)
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta: int, ts_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    fields = (varint(-1) if each is None else varint(len(each)) + each for each in (key, value))
    body = b"\0" + varint(ts_delta) + varint(delta) + b"".join(fields) + varint(0)
    return varint(len(body)) + body


def batch(
    base: int,
    records: Sequence[Record] | None = None,
    *,
    n: int = 1,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    txn: bool = False,
    leader_epoch: int = 0,
    ts: int | None = None,
    offsets: Sequence[int] | None = None,
    last: int | None = None,
    control: str = "",
    coordinator: int = 0,
) -> bytes:
    """Write a batch of format 2: `n` records, or these `records` (key and value).

    `offsets` are those of the records if they are not consecutive, `last` is the last offset of the
    header if it is not that of the last record, `control` is "commit" or "abort".
    """
    ts = T0 + base if ts is None else ts
    if control:
        kind = {"abort": 0, "commit": 1}[control]
        records = [(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator))]
    elif records is None:
        records = [(b"k%d" % (base + i), b"v%d" % (base + i)) for i in range(n)]
    offsets = range(base, base + len(records)) if offsets is None else offsets
    body = b"".join(
        record(offset - base, i, *each)
        for i, (offset, each) in enumerate(zip(offsets, records, strict=True))
    )
    if last is None:
        last = offsets[-1] if records else base
    attributes = (TXN if txn or control else 0) | (CONTROL if control else 0)
    newest = ts + max(0, len(records) - 1)
    tail = struct.pack(
        ">hiqqqhii", attributes, last - base, ts, newest, pid, epoch, seq, len(records)
    )
    tail += body
    head = struct.pack(">qiib", base, 9 + len(tail), leader_epoch, 2)
    return head + struct.pack(">I", crc32c.crc32c(tail)) + tail


def big_batch(base: int, size: int = 5000) -> bytes:
    """Write a batch of one record that is larger than `index.interval.bytes`."""
    return batch(base, [(b"k", bytes([65 + base % 26]) * size)])


def singles(start: int, end: int) -> list[bytes]:
    """Write a batch of one record for each offset from `start` to before `end`."""
    return [batch(each) for each in range(start, end)]


def offset_index(entries: Iterable[tuple[int, int]], base: int = 0) -> bytes:
    return b"".join(struct.pack(">ii", offset - base, pos) for offset, pos in entries)


def time_index(entries: Iterable[tuple[int, int]], base: int = 0) -> bytes:
    return b"".join(struct.pack(">qi", ts, offset - base) for ts, offset in entries)


def txn_index(entries: Iterable[tuple[int, int, int, int]]) -> bytes:
    """Write entries: producer id, first offset, last offset, last stable offset."""
    return b"".join(struct.pack(">hqqqq", 0, *each) for each in entries)


def snapshot(entries: Sequence[tuple[int, int, int, int, int, int, int, int]] = ()) -> bytes:
    """Write a producer snapshot.

    An entry is: producer id, epoch, last sequence, last offset, offset delta, timestamp,
    coordinator epoch, first offset of the open transaction (-1: none).
    """
    body = struct.pack(">i", len(entries))
    body += b"".join(struct.pack(">qhiqiqiq", *each) for each in entries)
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def checkpoint(rows: Sequence[Sequence[object]]) -> bytes:
    lines = ["0", str(len(rows)), *(" ".join(map(str, each)) for each in rows)]
    return "".join(f"{each}\n" for each in lines).encode()


# --- log dirs -------------------------------------------------------------------------------------


class HandLogDir:
    """A log dir that `eoctl init` made and a 4.3.1 broker ran on once: t-0 (delete), c-0 (compact).

    Both are empty, and it was stopped cleanly.
    """

    def __init__(self, out: Path) -> None:
        with tarfile.open(BASE) as archive:
            archive.extractall(out, filter="data")
        self.path = out / "d"
        (out / "d2").rename(self.path)

    def file(self, name: str, part: str = "t-0") -> Path:
        return self.path / part / name

    def segment(
        self,
        base: int,
        batches: Iterable[bytes],
        *,
        index: bytes = b"",
        times: bytes = b"",
        part: str = "t-0",
    ) -> None:
        stem = f"{base:020d}"
        self.file(f"{stem}.log", part).write_bytes(b"".join(batches))
        self.file(f"{stem}.index", part).write_bytes(index)
        self.file(f"{stem}.timeindex", part).write_bytes(times)

    def snapshot(
        self, offset: int, entries: Sequence[tuple[int, ...]] = (), part: str = "t-0"
    ) -> None:
        data = snapshot(entries)  # type: ignore[arg-type]
        self.file(f"{offset:020d}.snapshot", part).write_bytes(data)

    def remove(
        self,
        base: int = 0,
        kinds: Sequence[str] = ("log", "index", "timeindex"),
        part: str = "t-0",
    ) -> None:
        for kind in kinds:
            self.file(f"{base:020d}.{kind}", part).unlink(missing_ok=True)

    def checkpoints(
        self,
        *,
        high_watermark: int | None = None,
        recovery_point: int | None = None,
        log_start: int | None = None,
        part: str = "t-0",
    ) -> None:
        """Set the lines of the log dir's checkpoints; None leaves one as it is."""
        topic, number = part.rsplit("-", 1)
        for name, value in (
            ("replication-offset-checkpoint", high_watermark),
            ("recovery-point-offset-checkpoint", recovery_point),
            ("log-start-offset-checkpoint", log_start),
        ):
            if value is None:
                continue
            path = self.path / name
            rows = [each.split() for each in path.read_text().splitlines()[2:]]
            rows = [each for each in rows if each[:2] != [topic, number]]
            path.write_bytes(checkpoint([*rows, [topic, number, value]]))

    def epochs(self, entries: Sequence[tuple[int, int]] = ((0, 0),), part: str = "t-0") -> None:
        self.file("leader-epoch-checkpoint", part).write_bytes(checkpoint(entries))

    def crash(self) -> None:
        """Take away the mark of a clean stop."""
        (self.path / ".kafka_cleanshutdown").unlink(missing_ok=True)

    def closed(self, batches: Sequence[bytes], end: int, *, clean: bool = True) -> None:
        """Fill t-0 with one segment that ends at `end`, and all that a stop leaves beside it."""
        self.segment(0, batches, times=time_index([(T0 + end - 1, end - 1)]))
        self.checkpoints(high_watermark=end, recovery_point=end if clean else 0)
        self.snapshot(end)
        self.epochs()
        if not clean:
            self.crash()


def unpack_golden(out: Path, name: str) -> Path:
    """Unpack `tests/golden/NAME.tar.xz` to be changed."""
    target = out / "d"
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target
