"""Copies made by tests: a source that grows, a destination, and what must be the same in both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.writing.partition_store import FlushPolicy
from tests.read_log import read_log
from tests.writing import NEW_TOPIC, NOW_MS, batch, headers_of, make_log_dir, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.log.segment import LogRecord
    from storage.writing.writer import PartitionWriter
    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]


class Content(NamedTuple):
    """A record without its place."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Any, ...]


def contents(records: list[LogRecord]) -> list[Content]:
    return [Content(each.timestamp_ms, each.key, each.value, each.headers) for each in records]


def write(directory: Path, *batches: bytes | None) -> PartitionWriter:
    """Append batches as clients send them; None is a batch of ten records with its place in it."""
    writer = open_writer(directory, flush=FlushPolicy.NEVER)
    for each in batches:
        data = each
        if data is None:
            offset = writer.end_offset
            data = batch(10, value=b"from %d" % offset, timestamp_ms=NOW_MS + offset)
        writer.append(data)
    writer.close()
    return writer


class Copy:
    """Calls `eoctl copy` for one source and one destination."""

    def __init__(self, eoctl: Eoctl, source: Path, destination: Path) -> None:
        self._eoctl = eoctl
        self.source = source
        self.destination = destination

    def call(self, *more: object, is_applied: bool = True) -> Outcome:
        apply = ("--apply",) if is_applied else ()
        return self._eoctl(
            "copy", self.source, self.destination, *apply, *NEW_TOPIC, "--output", "jsonl", *more
        )

    def report(self, *more: object, is_applied: bool = True) -> dict[str, Any]:
        outcome = self.call(*more, is_applied=is_applied)
        assert outcome.status == 0, outcome.errors
        rows = [json.loads(line) for line in outcome.text.splitlines()]
        (row,) = [each for each in rows if each["kind"] == "copy"]
        found: dict[str, Any] = row
        return found

    def refused(self, words: str, *more: object, status: int = 4) -> dict[str, Any]:
        outcome = self.call(*more)
        assert outcome.status == status, outcome.errors
        error: dict[str, Any] = json.loads(outcome.errors.splitlines()[-1])
        assert words in error["message"]
        assert error["next_step"]
        return error

    @property
    def session(self) -> Path:
        (path,) = self.destination.parent.with_suffix(".eoctl").glob("copies/*.session")
        return path

    def require_equal(self, *, is_committed: bool = False) -> None:
        """The destination has the source's records once, in order, as a broker takes them."""
        source, copy = read_log(self.source), read_log(self.destination)
        wanted = source.committed if is_committed else source.records
        assert contents(copy.records) == contents(wanted)
        assert [each.offset for each in copy.records] == list(range(len(wanted)))
        require_sequences(self.destination)


def require_sequences(directory: Path) -> None:
    """What a broker checks of each producer: epochs never fall, sequences go on from 0."""
    expected: dict[int, tuple[int, int]] = {}
    for each in headers_of(directory):
        if each.producer_id < 0:
            continue
        epoch, sequence = expected.get(each.producer_id, (-1, 0))
        assert each.producer_epoch >= epoch
        assert each.base_sequence == (sequence if each.producer_epoch == epoch else 0)
        after = each.base_sequence + each.records_count
        expected[each.producer_id] = (each.producer_epoch, after)


def make_copy(eoctl: Eoctl, root: Path, batches_count: int = 3) -> Copy:
    """A source with some batches, and a log dir for the destination."""
    source = make_log_dir(root / "source") / "t-0"
    write(source, *[None] * batches_count)
    return Copy(eoctl, source, make_log_dir(root / "target") / "u-0")
