"""The plan of an export: pieces, written in any order, by any number of processes."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.cluster.clusters import Clusters
from recovery.cluster.placement import lost_partitions, not_understood
from recovery.cluster.remote_segments import report_remote
from recovery.records.read_options import RECORD_COLUMNS, ReadOptions
from recovery.transactions.isolation import Isolation
from storage.counts import agreeing, counted
from storage.dirs.acknowledged_offsets import Acknowledged
from storage.dirs.discovery import discover
from storage.errors import AccessError, EoctlError, UsageError
from storage.file_names import DirState, parse_partition_name
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.places.list_places import list_places, was_deleted
from storage.places.splits import Split, split_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.cluster.placement import AbsentPartition
    from recovery.transactions.outcomes import Stability
    from storage.dirs.log_dir import Problem
    from storage.places.listing import DirectoryPlace, SegmentPlace


DEFAULT_SPLIT_BYTES = 128 << 20
MAX_SPLIT_BYTES = 1 << 30  # the segment size of most brokers
# The directories of an export contain these already.
PATH_COLUMNS = ("topic", "partition")
# Columns from schemas, and their sources: JSON, or null if the value stays bytes.
DECODED_COLUMNS = MappingProxyType({"key_json": "key", "value_json": "value"})


class ExportFormat(StrEnum):
    """The format of files of records."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class ExportCodec(StrEnum):
    """The compression of Parquet files."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    NONE = "none"


class Until(StrEnum):
    """The end of a partition's log for an export."""

    LOG_END = "log-end"
    HW = "hw"


class ExportOptions(NamedTuple):
    """The options of an export. A resumed export must have the same, except `to`.

    Attributes:
        to: the target directory, absolute.
        format: of the files.
        codec: of Parquet.
        text: JSON Lines have text for valid UTF-8.
        columns: of `read_options`, with schemas also of DECODED_COLUMNS. Parquet files have no
            topic and partition, because the directories have them.
        schemas: digest of the schemas that decode values. Empty: none.
        isolation: the isolation level of a consumer.
        until: the log end, or the high watermark of the checkpoint.
        from_offset, to_offset: bounds of the offsets, the second excluded. Without the first an
            export begins at the log start offset.
        from_time_ms, to_time_ms: the same for the timestamps.
        split_bytes: approximate size of a piece.
        max_batch_bytes: limit for a decompressed batch of the log.
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
        """Return the options that a resumed export must share with the first run."""
        return {name: value for name, value in self._asdict().items() if name != "to"}


def split_bytes_for(total_bytes: int, pieces_count: int) -> int:
    """Return the size of splits for an approximate number of them, from 128 MiB to 1 GiB.

    100 TB would be 800,000 pieces of 128 MiB, which must be planned and scheduled. With larger
    pieces, a segment of the usual 1 GiB is a single piece.
    """
    wanted = total_bytes // max(pieces_count, 1)
    return min(max(wanted, DEFAULT_SPLIT_BYTES), MAX_SPLIT_BYTES)


# -- the pieces of an export, which any number of processes can write in any order.
#
# A piece is a split of a segment and becomes one file, or none if it has no records. Its path is
#
#     `DIR/topic=TOPIC/partition=N/BROKER-DIGEST-BASE_OFFSET-START_POS.parquet`.
#
# BROKER is the copy's broker (`storage.places.list_places`), adapted for a file name. DIGEST
# distinguishes directories with an equal name: log dirs of a broker, or clusters with the same node
# ids. So files of different copies never have the same name, and the name shows the source of the
# records.


MAX_BROKER_CHARS = 40


class ExportPiece(NamedTuple):
    """One piece: the range to read, and its file.

    Attributes:
        name: of the file, below the target directory.
        split: the place of the records.
        from_offset, to_offset: bounds of the offsets, the second excluded. None: none.
        stable_offset: for read_committed.
    """

    name: str
    split: Split
    from_offset: int | None
    to_offset: int | None
    stable_offset: int | None

    def read_options(self, options: ExportOptions) -> ReadOptions:
        """Return the options for reading its records."""
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
    """All pieces of an export, by directory and place in the log, with further facts.

    Attributes:
        pieces: to be exported.
        directories: of partitions, including directories without pieces.
        problems: errors of listing. Nothing below these paths is exported.
        notes: for people.
        bounds: of the wanted offsets of each directory, the second excluded. None: none.
        acknowledged: how far the logs are known to have reached, by directory.
        absent: assigned partitions without a directory.
        doubts: messages about unknown metadata records. They are also in the notes.
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
        """Return the facts about the log of a directory that are outside of it."""
        return self.acknowledged.get(directory, Acknowledged())


class ExportLimits(NamedTuple):
    """The values of a partition in a log dir's checkpoints. None: it has no value."""

    log_start_offset: int | None = None
    high_watermark: int | None = None


def plan_export(
    paths: Iterable[str],
    options: ExportOptions,
    *,
    stabilities: Callable[[list[StabilityJob]], Iterable[Stability]] | None = None,
) -> ExportPlan:
    """List the pieces of an export.

    Under read_committed every header of the partitions is read, to find their last stable offsets.

    Args:
        paths: as for `list_places`.
        options: of the export.
        stabilities: reads the headers. By default it reads one partition after another.

    Raises:
        AccessError, UsageError: as `list_places`.
        UsageError: no column is left, or a column is unknown.
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
    """Check the columns before anything else.

    Raises:
        UsageError: a column is unknown or given twice, or none is left.
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
    """Return whether a directory is exported. Set-aside directories must be named themselves."""
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
    """Return the log start offset, or a lower first offset, whose transactions are needed too."""
    log_start_offset = limits.log_start_offset or 0
    if options.from_offset is None:
        return log_start_offset
    return min(log_start_offset, options.from_offset)


def limits_of(
    directories: Iterable[str], listed: Mapping[str, Acknowledged] = MappingProxyType({})
) -> dict[str, ExportLimits]:
    """Return the limits by the checkpoints of the log dirs.

    Args:
        directories: their partitions.
        listed: facts from the listing, the only source for directories behind URIs.
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
    except EoctlError:  # removed meanwhile
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
    """Yield messages about records in remote storage, which are not exported."""
    low = options.from_offset or 0
    above = [
        each
        for each, places in by_directory.items()
        if "://" not in each and places and places[0].base_offset > low
    ]
    for reported in report_remote(above):
        yield f"{reported}: they are not exported"


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
        f"{counted(len(several), 'partition')} {agreeing(len(several), 'has', 'have')} several"
        f" copies here (up to {max(map(len, several))}). The "
        "same records are in the files of each; choose by the column broker, or by file name"
    )
    return [note]
