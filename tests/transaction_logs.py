"""Logs of transactions that a test writes batch by batch, damages, and knows the outcomes of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.cases.files import T0, HandLogDir, batch, time_index, txn_index

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Entry = tuple[int, int, int, int]


class Written(NamedTuple):
    """A batch; `kind` is plain, data, commit or abort; `transaction` numbers them."""

    data: bytes
    offset: int
    count: int
    kind: str = "plain"
    producer_id: int = -1
    transaction: int = -1

    @property
    def end(self) -> int:
        return self.offset + self.count


class Log:
    """A log as it was written, and its segments."""

    def __init__(self) -> None:
        self.batches: list[Written] = []
        self.outcomes: dict[int, str] = {}  # by transaction
        self.bases = [0]
        self._transactions = 0
        self._open: dict[int, int] = {}
        self._next: dict[int, tuple[int, int]] = {}  # epoch and sequence, by producer

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def roll(self) -> None:
        if self.end > self.bases[-1]:
            self.bases.append(self.end)

    def plain(self, count: int = 1) -> None:
        self.batches.append(Written(batch(self.end, n=count), self.end, count))

    def send(self, producer_id: int, count: int = 1) -> None:
        epoch, sequence = self._next.get(producer_id, (0, 0))
        if producer_id not in self._open:
            self._open[producer_id] = self._transactions
            self.outcomes[self._transactions] = "open"
            self._transactions += 1
        data = batch(self.end, n=count, pid=producer_id, epoch=epoch, seq=sequence, txn=True)
        number = self._open[producer_id]
        self.batches.append(Written(data, self.end, count, "data", producer_id, number))
        self._next[producer_id] = epoch, sequence + count

    def finish(
        self, producer_id: int, kind: str, version: int = 0, *, fenced: bool = False
    ) -> None:
        """End a transaction; `fenced`: with version 0, by a coordinator that raises the epoch."""
        number = self._open.pop(producer_id)
        epoch, sequence = self._next[producer_id]
        is_raised = version == 2 or fenced
        data = batch(self.end, pid=producer_id, epoch=epoch + is_raised, control=kind)
        self.outcomes[number] = {"commit": "committed", "abort": "aborted"}[kind]
        self.batches.append(Written(data, self.end, 1, kind, producer_id, number))
        self._next[producer_id] = (epoch + 1 + fenced, 0) if is_raised else (epoch, sequence)

    def opened(self) -> list[tuple[int, ...]]:
        """Return what a snapshot at the end has of the producers with an open transaction."""
        found = []
        for producer_id, number in self._open.items():
            own = [each for each in self.batches if each.transaction == number]
            epoch, sequence = self._next[producer_id]
            last, first = own[-1], own[0].offset
            time = T0 + last.end - 1
            entry = (
                producer_id,
                epoch,
                sequence - 1,
                last.end - 1,
                last.count - 1,
                time,
                -1,
                first,
            )
            found.append(entry)
        return found

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open


def index_of(batches: Sequence[Written]) -> list[Entry]:
    """Return what a broker that appends or recovers these batches writes to `.txnindex`."""
    first: dict[int, int] = {}
    entries = []
    for each in batches:
        if each.kind == "data":
            first.setdefault(each.producer_id, each.offset)
        elif each.kind in {"commit", "abort"}:
            begun = first.pop(each.producer_id, None)
            if each.kind == "abort" and begun is not None:
                stable = min(first.values(), default=each.end)
                entries.append((each.producer_id, begun, each.offset, stable))
    return entries


def write(
    out: Path, log: Log, batches: Sequence[Written], entries: Sequence[Entry], *, without: int = -1
) -> Path:
    """Write a partition; the segment with the base `without` is left out."""
    out.mkdir(parents=True)
    made = HandLogDir(out)
    made.remove()
    for base, end in zip(log.bases, [*log.bases[1:], 1 << 60], strict=True):
        if base == without:
            continue
        own = [each.data for each in batches if base <= each.offset < end]
        made.segment(base, own, times=time_index([(T0 + base, base)], base))
        listed = [each for each in entries if base <= each[2] < end]
        if listed:
            made.file(f"{base:020d}.txnindex").write_bytes(txn_index(listed))
    made.snapshot(log.end, log.opened())
    made.checkpoints(high_watermark=log.end, recovery_point=log.end)
    made.epochs()
    return made.file("")


def example(version: int, first: str, second: str) -> Log:
    """Two transactions of producer 21 (offsets 10 to 14, 18 to 20), between them one of 22."""
    log = Log()
    log.plain(10)
    log.send(21, 5)
    log.send(22, 2)
    log.finish(21, first, version)
    log.send(21, 3)
    log.finish(22, "commit", version)
    log.finish(21, second, version)
    log.plain(5)
    return log


def flipped(each: Written) -> Written:
    """One bit of a batch is wrong."""
    data = bytearray(each.data)
    data[-1] ^= 1
    return each._replace(data=bytes(data))


def damaged(log: Log, place: int, how: str) -> tuple[list[Written], list[Written]]:
    """Damage one batch; returns what is written, and what of it is readable."""
    left = [*log.batches[:place], *log.batches[place + 1 :]]
    if how == "cut":
        return left, left
    return [*log.batches[:place], flipped(log.batches[place]), *log.batches[place + 1 :]], left
