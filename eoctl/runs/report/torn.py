"""Transactions whose partitions contradict each other: found where the timelines leave room for it.

`eoctl txn torn` reads all logs again for it. A page is made in one pass: here only the partitions
are read again in which a producer is at work that is in another one, too, and has something open,
or an epoch that one of its logs commits and one aborts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.report.model import TornMark
from eoctl.runs.report import calls
from eoctl.runs.txn.reports import TORN_COLUMNS, torn_rows
from recovery.timeline.ended_epochs import join_ended
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eoctl.runs.report.partitions import PartitionStory
    from eoctl.runs.report.request import ReportRequest
    from eoctl.runs.txn.readers import TxnWorld
    from storage.dirs.discovery import Selected

# What a check finds of a batch, or a marker, that is late: of an older epoch, an older coordinator.
LATE_DATA, OLD_MARKER = "PRD-3", "PRD-5"


def torn_marks(
    world: TxnWorld,
    stories: Mapping[str, PartitionStory],
    selected: Mapping[str, Selected],
    request: ReportRequest,
) -> list[TornMark]:
    """Find them, as `eoctl txn torn` does."""
    live = {path: each for path, each in stories.items() if _is_live(selected[path])}
    producer_ids = _doubtful_producers(live.values())
    wanted = {
        path
        for path, each in live.items()
        if LATE_DATA in _found(each) or producer_ids & _at_work(each)
    }
    # Of several copies of a partition the one that reaches furthest counts: all of them are read.
    names = {_name(stories[path]) for path in wanted}
    paths = [path for path, each in live.items() if _name(each) in names]
    old = {path for path, each in live.items() if OLD_MARKER in _found(each)}
    notes = list(world.notes)
    rows = torn_rows(world, paths, old_in=old)
    world.notes[:] = notes  # a report has told how it reads
    places = {f"{each.look.check.row.topic}-{each.look.check.row.partition}": path
              for path, each in reversed(live.items())}  # fmt: skip
    command = calls.torn(request)
    found = []
    for row in rows:
        values = dict(zip(TORN_COLUMNS, row, strict=True))
        where = [f"{values['topic']}-{values['partition']}"]
        for name in ("open_in", "committed_in", "aborted_in", "without_marker"):
            values[name] = tuple(values[name])
            where += values[name]
        values["not_here"] = tuple(values["not_here"])
        path = next((places[each] for each in where if each in places), "")
        found.append(TornMark(**values, path=path, command=command))
    return found


def _is_live(selected: Selected) -> bool:
    name = selected.partition.name
    return name.state is DirState.LIVE and name.topic != METADATA_TOPIC


def _name(story: PartitionStory) -> tuple[str, int]:
    row = story.look.check.row
    return row.topic, row.partition


def _found(story: PartitionStory) -> set[str]:
    return {each.check_id for each in story.look.check.findings}


def _doubtful_producers(stories: Collection[PartitionStory]) -> set[int]:
    """Those that are in several partitions, and in one of them did more than commit.

    A marker that ended nothing has no outcome: of whom its epoch is cannot be told without data.
    Aborts are told from other transactions by epochs that are no other's. Where a log is damaged,
    what an audit counts of it may be another epoch: there all such aborts are held against it.
    """
    seen: dict[int, set[tuple[str, int]]] = {}
    doubtful: set[int] = set()
    for story in stories:
        for producer_id in _at_work(story):
            seen.setdefault(producer_id, set()).add(_name(story))
        doubtful.update(story.ended.open["producer_id"].tolist())
        if story.look.check.row.errors or story.look.check.row.unreadable:
            doubtful.update(_raising(story.ended.aborted))
        doubtful |= _below_log_start(story)
    rows = join_ended(*(each.ended.ended for each in stories))
    doubtful.update(rows["producer_id"][(rows["committed"] & rows["aborted"]) > 0].tolist())
    return {each for each in doubtful if len(seen[each]) > 1}


def _at_work(story: PartitionStory) -> set[int]:
    """Producers with transactions, or what is left of them."""
    producers = story.look.timeline.producers
    has = producers["transactional_batches"] > 0
    edges = story.look.timeline.spans.edges
    return {*edges["producer_id"].tolist(), *producers["producer_id"][has].tolist()}


def _below_log_start(story: PartitionStory) -> set[int]:
    """Whose data the log still has of before its start: timelines do not tell how that ended."""
    start, producers = story.look.facts.local_log_start_offset, story.look.timeline.producers
    is_below = (producers["transactional_batches"] > 0) & (producers["first_offset"] < (start or 0))
    return {*producers["producer_id"][is_below].tolist()}


def _raising(aborted: object) -> Sequence[int]:
    """Whose aborts raised the epoch: all others may be of another transaction of that epoch."""
    return aborted["producer_id"][aborted["marker"]["epoch"] > aborted["data"]["epoch"]].tolist()  # type: ignore[index,no-any-return]
