"""The metadata that the log dirs of a call hold, and the moment that is asked for."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from eoctl.clock import format_time_ms, parse_time_ms
from eoctl.progress import Progress
from eoctl.runs.in_cluster import doubts_of
from recovery.cluster.clusters import metadata_copies, read_newest_whole
from recovery.cluster.history import ALL, Moment, read_through
from storage.dirs.cluster_image import load_bootstrap_image
from storage.dirs.discovery import discover
from storage.dirs.log_dir import StoppedState
from storage.errors import UsageError
from storage.file_names import BOOTSTRAP_NAME, METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.cluster.clusters import ChosenReading, CountedTo, MetadataCopy
    from recovery.cluster.history import History
    from storage.dirs.cluster_image import ClusterImage, MetadataLog
    from storage.dirs.log_dir import LogDir

NOW = "now"
# A number below it is an offset, one above a time: 2001-09-09 in milliseconds.
FIRST_TIME_MS = 1_000_000_000_000
DAY_MS = 86_400_000


def parse_moment(text: str | None, end_time_ms: int | None) -> Moment:
    """Read what `--at` says: an offset, a time, or a time of day before the metadata's end.

    Raises:
        UsageError: it is none of these.
    """
    if text is None or text == NOW:
        return Moment()
    if not text.isascii() or text.startswith("-"):
        raise UsageError(f"--at {text}: neither an offset nor a time")
    if text.isdigit() and int(text) < FIRST_TIME_MS:
        return Moment(offset=int(text))
    if re.fullmatch(r"[0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,3})?)?Z?", text):
        if end_time_ms is None or end_time_ms < 0:
            raise UsageError(f"--at {text}: the metadata have no time, so that the day is unknown")
        time_ms = parse_time_ms(f"1970-01-01T{text.removesuffix('Z')}")
        day_ms = end_time_ms // DAY_MS * DAY_MS
        found = day_ms + time_ms
        return Moment(timestamp_ms=found if found <= end_time_ms else found - DAY_MS)
    return Moment(timestamp_ms=parse_time_ms(text))


def wanted_topics(topics: Sequence[str]) -> Callable[[str], bool] | None:
    """Whether a topic was asked for, by its name or a pattern; None: all are."""
    if not topics:
        return None
    return lambda name: any(fnmatchcase(name, each) for each in topics)


class GivenMetadata:
    """The metadata among the directories that were given, and which copy is the newest.

    Attributes:
        copies: newest first; [] where a bootstrap.checkpoint is all that there is.
        selected: directories of partitions, the metadata's apart.
        notes: what is doubtful, in words.
        is_short: something could not be read.
    """

    def __init__(self, paths: Sequence[str], metadata_dir: str | None) -> None:
        given = [*paths, *([] if metadata_dir is None else [metadata_dir])]
        if not given:
            raise UsageError("no LOG-DIR given", next_step="eoctl cluster-state LOG-DIR...")
        found = discover(given)
        self.notes = [str(each) for each in found.problems]
        self.is_short = bool(found.problems)
        self.log_dirs = found.log_dirs
        self.cluster_id = _one_cluster(found.log_dirs)
        self.copies, unread = metadata_copies(found.selected)
        self.notes += unread
        self.is_short = self.is_short or bool(unread)
        own = discover(paths).selected if paths else ()
        self.selected = tuple(
            each
            for each in own
            if each.partition.name.topic != METADATA_TOPIC
            and each.partition.name.state is DirState.LIVE
        )
        self.bootstrap = None if self.copies else _bootstrap(found.log_dirs)
        if not self.copies and self.bootstrap is None:
            raise UsageError(
                f"{', '.join(given)}: no {METADATA_TOPIC}-0, nor topics in a {BOOTSTRAP_NAME}",
                next_step="--metadata-dir DIR, or the log dir of a controller",
            )

    @property
    def path(self) -> str:
        """Where the metadata are."""
        if self.copies:
            return self.copies[0].partition.path
        assert self.bootstrap is not None
        return self.bootstrap[0]

    def end_time_ms(self) -> int | None:
        """The time of the newest record; None: not known."""
        if not self.copies:
            return None
        newest = self.copies[0].partition
        last = None
        for placed in newest.read(max(self.copies[0].end_offset - 1, 0)):
            last = placed.batch.header.max_timestamp_ms
        return last


def _bootstrap(log_dirs: Iterable[LogDir]) -> tuple[str, ClusterImage] | None:
    for each in log_dirs:
        image = load_bootstrap_image(each.path) if each.has_bootstrap else None
        if image is not None:
            return f"{each.path}/{BOOTSTRAP_NAME}", image
    return None


def _one_cluster(log_dirs: Iterable[LogDir]) -> str | None:
    known: dict[str, str] = {}
    for each in log_dirs:
        if each.meta is not None and each.meta.cluster_id is not None:
            known.setdefault(each.meta.cluster_id, each.path)
    if len(known) > 1:
        told = ", ".join(f"{path}: {cluster_id}" for cluster_id, path in known.items())
        raise UsageError(f"these are of different clusters ({told})")
    return next(iter(known), None)


def read_of_newest(
    given: GivenMetadata, moment: Moment, read: Callable[[MetadataLog, Moment], History]
) -> ChosenReading[History]:
    """Read the newest copy that goes back to a moment; if it is damaged, an older one that is not.

    `read`: `read_state` or `read_through`.

    Raises:
        UsageError: none goes back as far.
    """
    return read_newest_whole(
        given.copies,
        lambda copy: read(copy.partition, moment),
        lambda history: history.problems,
        reaches=lambda history: history.reaches,
    )


def newest_copy(given: GivenMetadata, moment: Moment = ALL) -> tuple[MetadataCopy, tuple[str, ...]]:
    """Choose the copy whose changes are told, and say which newer ones were passed over.

    Of several copies the chosen one is read here, and again where its changes are told. They are
    told while they are read, since all of them may be more than memory has, and the first one of a
    copy that turns out to be damaged could not be taken back.

    Raises:
        UsageError: none goes back as far.
    """
    if len(given.copies) == 1:
        return given.copies[0], ()
    with Progress("looking for the newest whole copy"):
        reading = read_of_newest(given, moment, read_through)
    return reading.copy, reading.passed_over


def parted_note(copy: MetadataCopy, known: CountedTo, end_offset: int) -> Iterator[str]:
    """Say what a newer copy, which does not go back as far or is damaged, does not have."""
    if known.parted_from is not None and known.end_offset < end_offset:
        yield (
            f"{copy.partition.path}: from offset {known.end_offset} on it is not known to have what"
            f" {known.parted_from} has, which is newer: it may never have counted"
        )


def require_reached(copy: MetadataCopy, end_offset: int, moment: Moment) -> None:
    """Raise UsageError if a copy ends before the offset that was asked for."""
    if moment.offset is not None and moment.offset >= end_offset:
        raise UsageError(
            f"--at {moment.offset}: {copy.partition.path} ends at {end_offset}",
            next_step=f"--at {max(end_offset - 1, 0)}, or without",
        )


def moment_notes(history: History, moment: Moment) -> Iterator[str]:
    """Say which record is the last one before a time that was asked for."""
    if moment.timestamp_ms is None:
        return
    told = "nothing was recorded before it"
    if history.timestamp_ms >= 0 and history.end_offset:
        told = f"the last record before it is of {format_time_ms(history.timestamp_ms)}"
    yield f"at {format_time_ms(moment.timestamp_ms)}: {told}"


def reading_notes(copy: MetadataCopy, history: History) -> Iterator[str]:
    """Say what is doubtful of a reading."""
    path = copy.partition.path
    yield from doubts_of(path, history.problems, history.image)
    if history.torn is not None:
        yield (
            f"{path}: ends in a batch that is cut short ({history.torn.reason}), as after a crash:"
            " none of its records counts here"
        )
    if not history.end_offset:
        yield f"{path}: no record is in it"
    if copy.partition.stopped is StoppedState.LIVE:
        yield f"{path}: a broker or controller has it open: it may have gone on since"
    if history.went_back_offset is not None:
        yield (
            f"{path}: times go back at offset {history.went_back_offset}: the clocks of"
            " controllers differ, and a time may be more than one offset"
        )
