"""Mutants as in `absences`, of logs with transactions, of compacted logs and of old formats."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from tests.cases.files import T0, HandLogDir, batch, checkpoint, time_index, txn_index
from tests.damage.absences import CHANGES, Written, value_of
from tests.transaction_logs import Log, index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

Range = tuple[int | None, int | None]


class Mutant(NamedTuple):
    """A log that was changed.

    Attributes:
        partition: its directory, in a log dir.
        records: value and outcome ("", "committed", "aborted" or "open") by offset, as written.
        reported_from: absent records below it need not be told: a cleaner may have removed them.
        crashed_from: the same, where the mark of a clean stop is not there.
        end: the log end offset before the change.
        is_whole: nothing was changed.
        is_ambiguous: see `tests.damage.absences.Absence`.
    """

    partition: Path
    records: Mapping[int, tuple[bytes, str]]
    story: str
    reported_from: int
    crashed_from: int
    end: int
    is_whole: bool
    is_ambiguous: bool


class Drawn(NamedTuple):
    """A log before it is changed: batches by segment, what to write beside them."""

    segments: dict[int, list[Written]]
    records: dict[int, tuple[bytes, str]]
    end: int
    write_more: Callable[[HandLogDir], None]
    topic: str = "t"
    reported_from: int = 0


# --- logs -----------------------------------------------------------------------------------------


def _with_transactions(draw: random.Random) -> Drawn:
    log = Log()
    versions = {21: 0, 22: 2, 23: draw.choice((0, 2))}
    for _ in range(draw.randint(6, 40)):
        kind = draw.choice(("plain", "send", "send", "send", "end", "end", "roll"))
        pid = draw.choice(sorted(versions))
        if kind == "plain":
            log.plain(draw.randint(1, 3))
        elif kind == "send":
            log.send(pid, draw.randint(1, 3))
        elif kind == "end" and log.is_open(pid):
            log.finish(pid, draw.choice(("commit", "commit", "abort")), versions[pid])
        elif kind == "roll" and len(log.bases) < 4:
            log.roll()
    log.plain()
    records = {
        offset: (b"v%d" % offset, log.outcomes.get(each.transaction, ""))
        for each in log.batches
        for offset in range(each.offset, each.end)
        if each.kind in {"plain", "data"}
    }
    bounds = [*zip(log.bases, [*log.bases[1:], 1 << 60], strict=True)]
    segments = {
        base: [
            Written(each.offset, each.end - 1, each.data)
            for each in log.batches
            if base <= each.offset < end
        ]
        for base, end in bounds
    }
    entries = index_of(log.batches)

    def write_more(made: HandLogDir) -> None:
        for base, end in bounds:
            if listed := [each for each in entries if base <= each[2] < end]:
                made.file(f"{base:020d}.txnindex").write_bytes(txn_index(listed))
        made.snapshot(log.end, log.opened())

    return Drawn(segments, records, log.end, write_more)


def _compacted(draw: random.Random) -> Drawn:
    """Below a line the cleaner was at work: keys are there once, emptied batches may be left."""
    end = draw.choice((20, 40, 60))
    bases = sorted({0, *(draw.randrange(1, end) for _ in range(draw.choice((1, 2, 3))))})
    cleaned = draw.choice(bases[1:]) if len(bases) > 1 else 0
    key_of = {offset: b"k%d" % draw.randrange(12) for offset in range(end)}
    newest = {key: offset for offset, key in key_of.items() if offset < cleaned}
    records: dict[int, tuple[bytes, str]] = {}
    segments: dict[int, list[Written]] = {}
    for base, stop in zip(bases, [*bases[1:], end], strict=True):
        log = segments[base] = []
        offset = base
        while offset < stop:
            last = min(offset + draw.choice((1, 2, 3, 7)), stop) - 1
            kept = [
                each
                for each in range(offset, last + 1)
                if offset >= cleaned or newest[key_of[each]] == each
            ]
            if kept:
                pairs = [(key_of[each], value_of(each)) for each in kept]
                log.append(Written(offset, last, batch(offset, pairs, offsets=kept, last=last)))
                records.update((each, (value_of(each), "")) for each in kept)
            offset = last + 1

    def write_more(made: HandLogDir) -> None:
        made.snapshot(end, part="c-0")
        rows = [["c", 0, cleaned]] if cleaned else []
        (made.path / "cleaner-offset-checkpoint").write_bytes(checkpoint(rows))

    return Drawn(segments, records, end, write_more, "c", cleaned)


def _message(magic: int, offset: int, key: bytes, value: bytes, attributes: int = 0) -> bytes:
    """Write a message of format 0 or 1."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", T0 + offset) if magic else b""
    body += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    data = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(data)) + data


def _wrapped(magic: int, offset: int, count: int) -> bytes:
    """Write a compressed message set; in format 1 its messages count from 0."""
    inner = b"".join(
        _message(magic, each - offset if magic else each, b"k", value_of(each))
        for each in range(offset, offset + count)
    )
    packed = gzip.compress(inner, mtime=0)
    body = struct.pack(">bb", magic, 1)
    body += struct.pack(">q", T0 + offset + count - 1) if magic else b""
    body += struct.pack(">i", -1) + struct.pack(">i", len(packed)) + packed
    data = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset + count - 1, len(data)) + data


def _old(draw: random.Random) -> Drawn:
    """Formats 0 or 1, and 2 from some offset on."""
    end = draw.choice((12, 40, 60))
    bases = sorted({0, *(draw.randrange(1, end) for _ in range(draw.choice((0, 2, 3))))})
    magic, upgraded = draw.choice((0, 1)), draw.choice((end, end, draw.randrange(end)))
    segments: dict[int, list[Written]] = {}
    for base, stop in zip(bases, [*bases[1:], end], strict=True):
        log = segments[base] = []
        offset = base
        while offset < stop:
            count = min(draw.choice((1, 1, 2, 5)), stop - offset)
            if offset >= upgraded:
                pairs = [(b"k", value_of(each)) for each in range(offset, offset + count)]
                data = batch(offset, pairs)
            elif count > 1:
                data = _wrapped(magic, offset, count)
            else:
                data = _message(magic, offset, b"k", value_of(offset))
            log.append(Written(offset, offset + count - 1, data))
            offset += count
    records = {offset: (value_of(offset), "") for offset in range(end)}
    return Drawn(segments, records, end, lambda made: made.snapshot(end))


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    "transactions": _with_transactions, "compacted": _compacted, "old": _old,
}  # fmt: skip


# --- a mutant -------------------------------------------------------------------------------------


def mutant(kind: str, seed: int, out: Path, *, is_whole: bool = False) -> Mutant:
    """Write the mutant of a seed; or the log as it was before, `is_whole`."""
    draw = random.Random(f"{kind} {seed}")
    log = KINDS[kind](draw)
    bases = sorted(log.segments)
    is_clean = draw.random() < 0.6
    story: list[str] = []
    before = {base: [*batches] for base, batches in log.segments.items()}
    for _ in range(0 if is_whole else draw.choice((1, 1, 1, 2))):
        base = draw.choice(bases)
        if len(bases) > 1 and draw.random() < 0.2:
            log.segments.pop(base, None)
            story.append(f"without segment {base}")
        elif log.segments.get(base):
            story.append(f"segment {base}: {draw.choice(CHANGES)(draw, log.segments[base])}")
    made = HandLogDir(out)
    part = f"{log.topic}-0"
    made.remove(part=part)
    for base, batches in log.segments.items():
        times = b""
        if batches:
            last = max(each.last for each in batches)
            times = time_index([(T0 + last, last)], base)
        made.segment(base, (each.data for each in batches), times=times, part=part)
    recovery_point = log.end if is_clean else 0
    made.checkpoints(high_watermark=log.end, recovery_point=recovery_point, part=part)
    made.epochs(part=part)
    log.write_more(made)
    if not is_clean:
        made.crash()
    # A crash may have come between the cleaner and its line.
    crashed_from = 0 if log.topic == "t" else bases[-1]
    return Mutant(
        partition=made.path / part,
        records=log.records,
        story=f"{kind} {seed}: {'; '.join(story)}",
        reported_from=log.reported_from if is_clean else crashed_from,
        crashed_from=crashed_from,
        end=log.end,
        is_whole=before == log.segments,
        is_ambiguous=len(story) > 1 and "of the offset of" in " ".join(story),
    )


# --- the judge ------------------------------------------------------------------------------------


def faults(
    log: Mutant,
    given: Iterable[tuple[int, bytes | None]],
    lost: Sequence[Range],
    *,
    withheld: Sequence[Range] | None = None,
) -> list[str]:
    """Tell what is wrong with what a reader gave (offset, value) and said (ranges).

    With `withheld`, ranges of unknown outcome, it is a reader of committed records.
    """
    reported, seen = [], set()
    for offset, value in given:
        true, outcome = log.records.get(offset, (None, ""))
        if value != true and not log.is_ambiguous:
            reported.append(f"offset {offset} was given as {value!r}")
        if withheld is not None and outcome not in {"", "committed"}:
            reported.append(f"offset {offset} was given, which is {outcome}")
        if offset in seen:
            reported.append(f"offset {offset} was given twice")
        seen.add(offset)
    ranges = [
        (first or 0, max(log.end, first or 0) if last is None else last)
        for first, last in [*lost, *(withheld or ())]
    ]
    wanted = {"", "committed"} if withheld is not None else {"", "committed", "aborted", "open"}
    unreported = sorted(
        offset
        for offset, (_, outcome) in log.records.items()
        if offset >= log.reported_from and outcome in wanted and offset not in seen
        if not any(first <= offset <= last for first, last in ranges)
    )
    if unreported:
        reported.append(f"offsets {unreported} are neither given nor reported")
    reported += (f"a loss runs from {first} to {last}" for first, last in ranges if last < first)
    return reported
