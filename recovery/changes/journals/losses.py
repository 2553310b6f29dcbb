"""Losses of applied changes to a log dir, from the plans next to their journals.

A change lowers the checkpoints with the log. Afterwards the log dir does not show that acknowledged
records are lost. The applied plan still shows it, with the numbers of its price. It does so until
the change is undone or its journal is removed.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.journals.backups import default_place
from recovery.changes.journals.journal import (
    PLAN_NAME,
    Status,
    has_journal,
    read_journal,
)
from recovery.changes.plans.plan import MAX_PLAN_BYTES, PLAN_ID
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import AccessError, CorruptError, EoctlError
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_NOUNS = {"adopt": "adoption", "truncate": "truncation"}  # nouns for commands whose name is a verb
_WITH_LOSS = frozenset({"adopt", "repair", "truncate", "rejoin"})


Range = tuple[int, int | None]


class Lost(NamedTuple):
    """The loss of a log by a change. Counts are upper limits. None is unknown.

    Attributes:
        offsets_count: offsets that no file has afterwards. `is_least`: this number or more.
        acknowledged_offsets_count: of them below the high watermark.
        records_count: records of intact batches that no file has afterwards. None: the truncated
            bytes could not be read to their end.
        acknowledged_records_count: of them below the high watermark.
        batches_count: intact batches with these records, or with markers. None: not counted.
        copies_count: intact batches that are dropped and stay elsewhere.
    """

    offsets_count: int = 0
    is_least: bool = False
    acknowledged_offsets_count: int | None = 0
    records_count: int | None = 0
    acknowledged_records_count: int | None = 0
    batches_count: int | None = 0
    copies_count: int = 0

    def plus(self, other: Lost) -> Lost:
        """Return the sum of two losses."""
        return Lost(
            offsets_count=self.offsets_count + other.offsets_count,
            is_least=self.is_least or other.is_least,
            acknowledged_offsets_count=_total(
                self.acknowledged_offsets_count, other.acknowledged_offsets_count
            ),
            records_count=_total(self.records_count, other.records_count),
            acknowledged_records_count=_total(
                self.acknowledged_records_count, other.acknowledged_records_count
            ),
            batches_count=_total(self.batches_count, other.batches_count),
            copies_count=self.copies_count + other.copies_count,
        )

    @property
    def is_something(self) -> bool:
        """Return whether an offset, a record or a marker is lost, or may be lost.

        A torn end without acknowledged offsets is no loss: it never had a whole batch.
        """
        return bool(
            self.offsets_count
            or (self.is_least and self.acknowledged_offsets_count != 0)
            or self.batches_count
            or self.records_count is None
            or self.records_count
        )

    @property
    def is_acknowledged(self) -> bool:
        """Return whether some lost data was acknowledged, as far as is known."""
        counts = (self.acknowledged_offsets_count, self.acknowledged_records_count)
        return any(each is None or each > 0 for each in counts)

    @property
    def text(self) -> str:
        """The loss as text: "3 offsets, 3 acknowledged"."""
        return "; ".join(self._parts()) or "no offset"

    def _parts(self) -> Iterator[str]:
        if self.batches_count is None:
            acknowledged = _acknowledged(self.acknowledged_records_count)
            yield f"{counted(self.records_count or 0, 'record')}, {acknowledged}"
        elif self.batches_count and not self.records_count:
            yield counted(self.batches_count, "marker")
        elif self.batches_count:
            records = counted(self.records_count or 0, "intact record")
            batches = counted(self.batches_count, "batch", "batches")
            yield f"{records} in {batches}, {_acknowledged(self.acknowledged_records_count)}"
        if self.offsets_count:
            least = "at least " if self.is_least else ""
            offsets = f"{least}{counted(self.offsets_count, 'offset')}"
            yield f"{offsets}, {_acknowledged(self.acknowledged_offsets_count)}"
        elif self.is_least and self.acknowledged_offsets_count != 0:
            yield f"a torn end, {_acknowledged(self.acknowledged_offsets_count)}"
        elif self.is_least:
            yield "a torn end" if self.batches_count else "no whole batch; a torn end goes"
        elif self.copies_count and not self.batches_count:
            copies = counted(self.copies_count, "duplicate batch", "duplicate batches")
            yield f"no record; {copies}"


def _total(*counts: int | None) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def _acknowledged(count: int | None) -> str:
    return "how many acknowledged is unknown" if count is None else f"{count:,} acknowledged"


def lost_by_cut(price: Mapping[str, Any]) -> Lost:
    """Return the loss by a truncation, or by the truncation of a rejoin, from its price."""
    records_count = price["records_count"]
    acknowledged = price["acknowledged_records_count"]
    if records_count is not None:
        return Lost(
            records_count=records_count,
            acknowledged_records_count=acknowledged,
            batches_count=None,
        )
    return Lost(
        offsets_count=price["cut_end_offset"] - price["cut_start_offset"],
        acknowledged_offsets_count=acknowledged,
        records_count=None,
    )


class JournalLoss(NamedTuple):
    """The loss of one partition by an applied change.

    Attributes:
        journal: its directory.
        applied_at_ms: the time of the change.
        directory: of the partition.
        ranges: of lost offsets, inclusive. A last offset of None is unknown.
        lost: the size of the loss.
        is_moved: the whole partition was set aside, for the broker to fetch it again.
    """

    journal: str
    command: str
    applied_at_ms: int
    directory: str
    ranges: tuple[Range, ...]
    lost: Lost
    is_moved: bool = False

    @property
    def base_offset(self) -> int | None:
        """The first lost offset. None: no offset is missing."""
        return min((first for first, _ in self.ranges), default=None)

    @property
    def last_offset(self) -> int | None:
        """The last lost offset. None: unknown."""
        lasts = [last for _, last in self.ranges]
        known = [last for last in lasts if last is not None]
        return max(known) if lasts and len(known) == len(lasts) else None

    def explains(self, base_offset: int, last_offset: int) -> bool:
        """Return whether this change lost these offsets."""
        return any(
            first <= base_offset and last is not None and last_offset <= last
            for first, last in self.ranges
        )

    @property
    def reported(self) -> str:
        """The loss and its change, as text."""
        moment = datetime.fromtimestamp(self.applied_at_ms // 1000, UTC)
        when = f"{moment:%Y-%m-%d %H:%M} UTC (journal {Path(self.journal).name})"
        does = "moved away" if self.is_moved else "lost"
        by = f"{does} by the {_NOUNS.get(self.command, self.command)} of {when}"
        lost = self.lost
        is_plain = lost == Lost(lost.offsets_count, acknowledged_offsets_count=lost.offsets_count)
        if is_plain:
            return f"{counted(lost.offsets_count, 'acknowledged offset')} {by}"
        return f"{lost.text}: {by}"


def journal_losses(log_dirs: Iterable[str]) -> Iterator[JournalLoss]:
    """Yield the losses of the partitions of log dirs by applied changes, oldest change first.

    A partition that was moved away, and fetched again, is not lost. Only the default place of
    journals is read. `eoctl journal list` reports unreadable journals and plans. They yield nothing
    here.
    """
    for log_dir in dict.fromkeys(map(os.path.realpath, log_dirs)):
        place = Path(default_place(log_dir))
        try:
            names = sorted(os.listdir(place))  # noqa: PTH208 - names are all that is wanted
        except OSError:
            continue
        for name in names:
            if PLAN_ID.fullmatch(name) and _command_of(name) in _WITH_LOSS:
                yield from (
                    each for each in losses_of(str(place / name), log_dir) if not _is_back(each)
                )


def _is_back(loss: JournalLoss) -> bool:
    """Return whether the broker has fetched a moved partition, as far as offsets show."""
    if not loss.is_moved or loss.last_offset is None:
        return False
    try:
        end = Partition.of(select_partition(loss.directory)).log_end()
    except EoctlError:
        return False
    return end is not None and end.offset > loss.last_offset


def _command_of(name: str) -> str:
    return name.partition("Z-")[2].rpartition("-")[0]


def losses_of(path: str, log_dir: str) -> Iterator[JournalLoss]:
    """Yield the losses of a log dir's partitions by the change of one journal, if applied."""
    try:
        if not has_journal(path) or (found := read_journal(path)).status is not Status.APPLIED:
            return
        plan = json.loads(read_small_file(Path(path, PLAN_NAME), MAX_PLAN_BYTES))
        price, arguments = plan["price"], plan["arguments"]
        rows = [*_of_ranges(price), *_of_moves(price), *_of_cuts(price, arguments)]
    except (AccessError, CorruptError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    own = os.path.realpath(found.log_dirs[0])
    for directory, ranges, lost, is_moved in rows:
        parent = os.path.realpath(Path(directory).parent) if Path(directory).is_absolute() else own
        if lost.is_something and (parent == log_dir or len(found.log_dirs) == 1):
            yield JournalLoss(
                journal=found.path,
                command=found.command,
                applied_at_ms=found.applied_at_ms,
                directory=str(Path(log_dir, Path(directory).name)),
                ranges=ranges,
                lost=lost,
                is_moved=is_moved,
            )


_Row = tuple[str, tuple[Range, ...], Lost, bool]


def _of_ranges(price: Mapping[str, Any]) -> Iterator[_Row]:
    """Yield the joined ranges of each partition of a repair."""
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for each in price.get("lost_ranges", ()):
        by_partition.setdefault(_partition_of(each), []).append(each)
    for name, ranges in by_partition.items():
        lost = Lost()
        for each in ranges:
            lost = lost.plus(_of_range(each))
        missing = tuple(
            (each["base_offset"], each["last_offset"])
            if each["base_offset"] is not None
            else tuple(each["dropped_offsets"])
            for each in ranges
            if each["base_offset"] is not None or each.get("dropped_offsets") is not None
        )
        yield name, missing, lost, False


def _partition_of(lost_range: Mapping[str, Any]) -> str:
    """Return the partition in `t-0/00000000000000000000.log`, or in the path of a directory."""
    file = Path(lost_range["file"])
    return file.parent.name if file.suffix == ".log" else file.name


def _of_range(value: Mapping[str, Any]) -> Lost:
    first, last = value["base_offset"], value["last_offset"]
    return Lost(
        offsets_count=0 if first is None or last is None else last - first + 1,
        is_least=first is not None and last is None,
        acknowledged_offsets_count=value["acknowledged_offsets_count"],
        records_count=value["records_count"],
        acknowledged_records_count=value["acknowledged_records_count"],
        batches_count=value["batches_count"],
    )


def _of_moves(price: Mapping[str, Any]) -> Iterator[_Row]:
    for each in price.get("moved", ()):
        start, end = each["log_start_offset"], each["log_end_offset"]
        lost = Lost(
            offsets_count=0 if end is None else end - start,
            is_least=end is None,
            acknowledged_offsets_count=each["acknowledged_offsets_count"],
        )
        missing = ((start, None if end is None else end - 1),)
        yield each["partition"], missing, lost, True


def _of_cuts(price: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[_Row]:
    """Yield the ranges of a truncation, with all replicas truncated with it, or of a rejoin."""
    if "cut_start_offset" not in price:
        return
    first = {**price, "path": arguments["partition"]}
    for each in (first, *price.get("replicas", ())):
        missing = ((each["cut_start_offset"], each["cut_end_offset"] - 1),)
        acknowledged = each.get("acknowledged_records_count")
        lost = lost_by_cut({**each, "acknowledged_records_count": acknowledged})
        yield each["path"], missing, lost, False


def note_of_changes(changes: Sequence[JournalLoss]) -> Iterator[str]:
    """Yield the total loss of each change over all partitions, as its own last lines said."""
    by_journal: dict[str, JournalLoss] = {}
    for each in changes:
        known = by_journal.get(each.journal)
        lost = each.lost if known is None else known.lost.plus(each.lost)
        by_journal[each.journal] = each._replace(lost=lost)
    yield from (each.reported for each in by_journal.values())
