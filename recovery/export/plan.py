"""What an export consists of: pieces, written in any order, by any number of processes."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.cluster.clusters import Clusters
from recovery.cluster.placement import lost_partitions, not_understood
from recovery.cluster.remote_segments import tell_remote
from recovery.records.read_options import RECORD_COLUMNS, ReadOptions
from recovery.transactions.isolation import Isolation
from storage.dirs.acknowledged import Acknowledged
from storage.dirs.discovery import discover
from storage.errors import AccessError, EoctlError, UsageError
from storage.file_names import DirState, parse_partition_name
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.places.find import list_places, was_deleted
from storage.places.splits import Split, split_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.cluster.placement import AbsentPartition
    from recovery.transactions.outcomes import Stability
    from storage.dirs.log_dir import Problem
    from storage.places.listing import DirectoryPlace, SegmentPlace


DEFAULT_SPLIT_BYTES = 128 << 20
MAX_SPLIT_BYTES = 1 << 30  # of most brokers' segments
# The directories of an export tell these already.
PATH_COLUMNS = ("topic", "partition")
# Columns that schemas add, and what they decode: JSON, null where it stays bytes.
DECODED_COLUMNS = MappingProxyType({"key_json": "key", "value_json": "value"})


class ExportFormat(StrEnum):
    """What files of records are."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class ExportCodec(StrEnum):
    """How Parquet files are compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    NONE = "none"


class Until(StrEnum):
    """Where the log of a partition ends for an export."""

    LOG_END = "log-end"
    HW = "hw"


class ExportOptions(NamedTuple):
    """How to export. All but the first are the same when an export is resumed.

    Attributes:
        to: the target directory, absolute.
        format: of the files.
        codec: of Parquet.
        text: JSON Lines hold text where it is valid UTF-8.
        columns: of `read_options`, with schemas also of DECODED_COLUMNS; topic and partition are in
            no Parquet file, since directories tell them.
        schemas: digest of the schemas that decode values; empty: none.
        isolation: what a consumer would be given.
        until: the end, or what is replicated as far as the checkpoint knows.
        from_offset, to_offset: bounds of the offsets, the second excluded; without the first an
            export begins at the log start offset.
        from_time_ms, to_time_ms: the same of the timestamps.
        split_bytes: about the size of a piece.
        max_batch_bytes: most that a batch of the log may decompress to.
    """

    to: str
    format: ExportFormat = ExportFormat.PARQUET
    codec: ExportCodec = ExportCodec.ZSTD
    text: bool = False
    columns: tuple[str, ...] = RECORD_COLUMNS
    schemas: str = ""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    until: Until = Until.LOG_END
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES

    @property
    def file_columns(self) -> tuple[str, ...]:
        """Return the columns that are in the files."""
        if self.format is ExportFormat.PARQUET:
            return tuple(name for name in self.columns if name not in PATH_COLUMNS)
        return self.columns

    def to_json(self) -> dict[str, Any]:
        """Return what a resumed export must have in common with the first run."""
        return {name: value for name, value in self._asdict().items() if name != "to"}


def split_bytes_for(total_bytes: int, pieces_count: int) -> int:
    """Return a size of splits for about so many of them, from 128 MiB to 1 GiB.

    At 100 TB a piece of 128 MiB would be one of 800,000, each of them to be planned and scheduled;
    a segment of the usual GiB is then read in one piece, and need not be cut.
    """
    wanted = total_bytes // max(pieces_count, 1)
    return min(max(wanted, DEFAULT_SPLIT_BYTES), MAX_SPLIT_BYTES)


# -- what an export consists of: pieces that can be written in any order, by any number of
#    processes
#
# A piece is a split of a segment and becomes one file (none, if it gives no records):
#
#     DIR/topic=TOPIC/partition=N/BROKER-DIGEST-BASE_OFFSET-START_POS.parquet
#
# BROKER is the copy's broker (`storage.places.find`), made fit for a file name; DIGEST tells
# directories apart that would give one name: log dirs of a broker, clusters that use the same
# node ids. So files of different copies never meet in one name, and which file holds whose
# records is seen from outside.


MAX_BROKER_CHARS = 40


class ExportPiece(NamedTuple):
    """One piece: what to read, and the file it becomes.

    Attributes:
        name: of the file, below the target directory.
        split: where the records are.
        from_offset, to_offset: bounds of the offsets, the second excluded; None: none.
        stable_offset: for read_committed.
    """

    name: str
    split: Split
    from_offset: int | None
    to_offset: int | None
    stable_offset: int | None

    def read_options(self, options: ExportOptions) -> ReadOptions:
        """Return what is wanted of its records."""
        columns = dict.fromkeys(DECODED_COLUMNS.get(name, name) for name in options.file_columns)
        return ReadOptions(
            columns=tuple(columns),
            isolation=options.isolation,
            stable_offset=self.stable_offset,
            from_offset=self.from_offset,
            to_offset=self.to_offset,
            from_time_ms=options.from_time_ms,
            to_time_ms=options.to_time_ms,
            max_batch_bytes=options.max_batch_bytes,
        )


class ExportPlan(NamedTuple):
    """All pieces of an export, by directory and place in the log, and what is around them.

    Attributes:
        pieces: to be exported.
        directories: of partitions, those without pieces too.
        problems: what could not be listed; nothing below it is exported.
        notes: for people.
        bounds: of the offsets that are wanted of each directory; the second excluded, None: none.
        acknowledged: how far the logs are known to have reached, by directory.
        absent: partitions that should be there and have no directory.
        doubts: what of the metadata was not understood; among the notes.
    """

    pieces: tuple[ExportPiece, ...]
    directories: tuple[DirectoryPlace, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    bounds: Mapping[str, tuple[int | None, int | None]] = MappingProxyType({})
    acknowledged: Mapping[str, Acknowledged] = MappingProxyType({})
    absent: tuple[AbsentPartition, ...] = ()
    doubts: tuple[str, ...] = ()

    def known_of(self, directory: str) -> Acknowledged:
        """What is known of the log of a directory, beside what is in it."""
        return self.acknowledged.get(directory, Acknowledged())


class ExportLimits(NamedTuple):
    """What a log dir's checkpoints say of a partition; None: nothing."""

    log_start_offset: int | None = None
    high_watermark: int | None = None


def plan_export(
    paths: Iterable[str],
    options: ExportOptions,
    *,
    stabilities: Callable[[list[StabilityJob]], Iterable[Stability]] | None = None,
) -> ExportPlan:
    """List what an export is made of.

    Under read_committed every header of the partitions is read, to find their last stable offsets.

    Args:
        paths: as `list_places` takes them.
        options: how to export.
        stabilities: does that reading; by default one partition after the other.

    Raises:
        AccessError, UsageError: as `list_places`.
        UsageError: no column is left, or one is not known.
    """
    check_columns(options)
    wanted = list(paths)
    listing = list_places(wanted)
    notes = list(listing.notes)
    directories = [each for each in listing.directories if _is_wanted(each, wanted, notes)]
    by_directory: dict[str, list[SegmentPlace]] = {each.directory: [] for each in directories}
    for place in listing.places:
        if place.directory in by_directory:
            by_directory[place.directory].append(place)
    limits = limits_of([each.directory for each in directories], listing.acknowledged)
    problems = list(listing.problems)
    stable = _stable_offsets(by_directory, limits, options, stabilities or _one_by_one, problems)
    pieces: list[ExportPiece] = []
    bounds: dict[str, tuple[int | None, int | None]] = {}
    for each in directories:
        places = [
            place
            for place in by_directory[each.directory]
            if place.may_hold(options.from_offset, options.to_offset)
        ]
        low, high = _bounds(limits[each.directory], options, each, notes)
        bounds[each.directory] = (options.from_offset, high)
        pieces += (
            ExportPiece(
                name=_name(split, options),
                split=split,
                from_offset=low,
                to_offset=high,
                stable_offset=stable.get(each.directory),
            )
            for split in split_places(places, options.split_bytes)
        )
    notes += _remote(by_directory, options)
    notes += _copies(directories)
    clusters = Clusters(listing.log_dirs)
    doubts = not_understood(listing.log_dirs, clusters)
    notes += doubts
    return ExportPlan(
        pieces=tuple(pieces),
        directories=tuple(directories),
        problems=tuple(problems),
        notes=tuple(notes),
        bounds=bounds,
        acknowledged=listing.acknowledged,
        absent=tuple(lost_partitions(listing.log_dirs, clusters)),
        doubts=tuple(doubts),
    )


def check_columns(options: ExportOptions) -> None:
    """Look at the columns before anything else.

    Raises:
        UsageError: one is not known or given twice, or none is left.
    """
    names = (*RECORD_COLUMNS, *DECODED_COLUMNS) if options.schemas else RECORD_COLUMNS
    known = f"columns: {', '.join(names)}"
    for name in options.columns:
        if name in DECODED_COLUMNS and not options.schemas:
            raise UsageError(f"{name}: only schemas give this column", next_step="--decode")
        if name not in names:
            raise UsageError(f"{name}: no column of records", next_step=known)
        if options.columns.count(name) > 1:
            raise UsageError(f"{name}: given twice", next_step=known)
    if not set(options.columns) - set(PATH_COLUMNS):
        raise UsageError("no column is left for the files", next_step=known)


def _is_wanted(directory: DirectoryPlace, paths: Sequence[str], notes: list[str]) -> bool:
    """Leave out directories that a broker has set aside, unless they are asked for by name."""
    name = parse_partition_name(Path(directory.directory).name)
    if name is None or name.state is DirState.LIVE:
        return True
    if any(Path(each).absolute() == Path(directory.directory) for each in paths):
        return True
    notes.append(f"{directory.directory}: left out ({name.state}); name it as PATH to export it")
    return False


# --- the last stable offsets ---


class StabilityJob(NamedTuple):
    """A partition whose headers are to be read: arguments of `find_stability`."""

    places: tuple[SegmentPlace, ...]
    high_watermark: int | None
    log_start_offset: int


def run_stability(job: StabilityJob) -> Stability:
    """Read the headers of one partition."""
    from recovery.transactions.outcomes import find_stability

    return find_stability(
        job.places, high_watermark=job.high_watermark, log_start_offset=job.log_start_offset
    )


def _one_by_one(jobs: list[StabilityJob]) -> Iterable[Stability]:
    return map(run_stability, jobs)


def _is_deleted(directory: str, problem: Problem) -> bool:
    return isinstance(problem, AccessError) and was_deleted(directory, problem.path, problem)


def _stable_offsets(
    by_directory: dict[str, list[SegmentPlace]],
    limits: dict[str, ExportLimits],
    options: ExportOptions,
    stabilities: Callable[[list[StabilityJob]], Iterable[Stability]],
    problems: list[Problem],
) -> dict[str, int]:
    if options.isolation is not Isolation.READ_COMMITTED:
        return {}
    is_hw = options.until is Until.HW
    directories = sorted(each for each, places in by_directory.items() if places)
    jobs = [
        StabilityJob(
            tuple(by_directory[each]),
            limits[each].high_watermark if is_hw else None,
            _start_of(limits[each], options),
        )
        for each in directories
    ]
    found = {}
    for directory, stability in zip(directories, stabilities(jobs), strict=True):
        found[directory] = stability.stable_offset
        problems += (each for each in stability.problems if not _is_deleted(directory, each))
    return found


# --- bounds ---


def _start_of(limits: ExportLimits, options: ExportOptions) -> int:
    """Where the log starts: who asks for offsets below that wants their transactions, too."""
    log_start_offset = limits.log_start_offset or 0
    if options.from_offset is None:
        return log_start_offset
    return min(log_start_offset, options.from_offset)


def limits_of(
    directories: Iterable[str], listed: Mapping[str, Acknowledged] = MappingProxyType({})
) -> dict[str, ExportLimits]:
    """Ask the checkpoints of the log dirs.

    Args:
        directories: their partitions.
        listed: what was known when they were listed, which is all that is behind URIs.
    """
    limits = {}
    for each in directories:
        known = listed.get(each, Acknowledged())
        limits[each] = ExportLimits(known.log_start_offset, known.high_watermark)
    local = [each for each in limits if "://" not in each]
    if not local:
        return limits
    try:
        found = discover(local)
    except EoctlError:  # gone meanwhile
        return limits
    for partition, log_dir in found.selected:
        if log_dir is not None and partition.path in limits:
            limits[partition.path] = ExportLimits(
                log_dir.log_start_offset(partition), log_dir.high_watermark(partition)
            )
    return limits


def _bounds(
    limits: ExportLimits, options: ExportOptions, directory: DirectoryPlace, notes: list[str]
) -> tuple[int | None, int | None]:
    low, high = options.from_offset, options.to_offset
    if low is None:
        low = limits.log_start_offset
    if options.until is Until.HW:
        if limits.high_watermark is None:
            notes.append(f"{directory.directory}: high watermark unknown, exported to the log end")
        else:
            high = limits.high_watermark if high is None else min(high, limits.high_watermark)
    return low, high


def _remote(by_directory: dict[str, list[SegmentPlace]], options: ExportOptions) -> Iterator[str]:
    """Say what would have to come from remote storage, and is in no file of the export."""
    low = options.from_offset or 0
    above = [
        each
        for each, places in by_directory.items()
        if "://" not in each and places and places[0].base_offset > low
    ]
    for told in tell_remote(above):
        yield f"{told}: they are not exported"


# --- names ---


def _name(split: Split, options: ExportOptions) -> str:
    place = split.place
    broker = re.sub(r"[^A-Za-z0-9._]+", "_", place.broker).strip("_.")[-MAX_BROKER_CHARS:]
    digest = hashlib.sha256(place.directory.encode()).hexdigest()[:8]
    file = f"{broker or 'broker'}-{digest}-{place.base_offset:020d}-{split.start_pos:010d}"
    topic = re.sub(r"[^A-Za-z0-9._-]", "_", place.topic)
    return f"topic={topic}/partition={place.partition}/{file}.{options.format}"


def _copies(directories: Iterable[DirectoryPlace]) -> list[str]:
    copies: dict[tuple[str, int], list[str]] = {}
    for each in directories:
        copies.setdefault((each.topic, each.partition), []).append(each.broker)
    several = [brokers for brokers in copies.values() if len(brokers) > 1]
    if not several:
        return []
    note = (
        f"{len(several)} partitions have several copies here (up to {max(map(len, several))}): the "
        "same records are in the files of each; choose by the column broker, or by file name"
    )
    return [note]
