"""A run of `eoctl spark-audit`: list, read with an engine, join, and report."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl import __version__
from eoctl.commands.shared.engine import EngineOptions, EngineRun, anywhere, jobs_of
from eoctl.messages import first_of
from eoctl.progress import Progress
from recovery.audit.reports import Audit, Audited
from recovery.audit.state import AuditCheckpoint, AuditState, by_directory, waves_of
from recovery.cluster.placement import doubts_around
from recovery.cluster.remote_segments import report_remote
from recovery.export.plan import DEFAULT_SPLIT_BYTES, split_bytes_for
from recovery.rules.findings import Severity
from recovery.summaries.codec import LoadedSummary, Shelf, pack_partition
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.segment import read_split
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, AccessError, FormatError
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.files.uris import Uri, is_uri
from storage.formats.transaction_state import parse_record
from storage.places.list_places import list_places, open_place
from storage.places.splits import plan_places, split_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eoctl.spark.tables import TableTarget
    from recovery.summaries.codec import HeldSummary
    from recovery.summaries.partition import FoundDamage
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.places.listing import Listing, SegmentPlace
    from storage.places.splits import Split, TimelineStart


# -- the transactional.id of a producer id, from the coordinator's log
#
# All records of `__transaction_state` count, not only the last record of each id. A
# transactional.id has had other producer ids before (a used up epoch brings a new id, TXN-7).


def read_transactional_ids(places: Iterable[SegmentPlace]) -> tuple[dict[int, str], list[str]]:
    """Return transactional ids by producer id, and the problems.

    Args:
        places: segments, where other topics are skipped. Later records win.
    """
    ids: dict[int, str] = {}
    problems: list[str] = []
    for place in places:
        if place.topic != TRANSACTION_STATE_TOPIC:
            continue
        try:
            with open_place(place) as segment:
                for batch in segment.scan(is_active=place.is_active):
                    if batch.crc_ok and not batch.header.is_control:
                        _take_batch(segment, batch, ids, problems)
        except AccessError as exc:
            problems.append(str(exc))
    return ids, problems


def _take_batch(
    segment: Segment, batch: ScannedBatch, ids: dict[int, str], problems: list[str]
) -> None:
    try:
        for record in segment.records(batch):
            if record.key is None or record.value is None:
                continue
            transactional_id, state = parse_record(record.key, record.value)
            if state is None:
                continue
            known = (state.previous_producer_id, state.next_producer_id, state.producer_id)
            ids.update((each, transactional_id) for each in known if each >= 0)
    except (FormatError, AccessError) as exc:
        problems.append(f"{segment.path}: position {batch.pos}: {exc}")


# -- audit run


PIECES_PER_JOB = 8
TASKS_PER_CORE = 8  # on Spark, where a task costs 16 ms of CPU time in addition to its bytes
# Pieces read between two checkpoints: 25 GiB, a minute or two of a core.
WAVE_PIECES_PER_CORE = 200
VERIFIED = "verified: headers and checksums of all batches; records of format 2 were not looked at"
# Figures and reports that are findings, by severity.
WARNING_FIGURES = ("duplicate_batches", "epoch_regressions", "late_batches")


class AuditOptions(NamedTuple):
    """The options of an audit.

    Attributes:
        engine: the engine.
        split_bytes: see `storage.places.splits`. None: a size for the engine.
        state_path: the state of an earlier run, None to read everything.
        checkpoint_dir: the directory for finished directories, None to keep nothing.
        coordinator_dirs: more PATHs to search for `__transaction_state`.
        timelines: the wanted timelines, by absolute path of the directory.
        tables: tables of the reports that only Spark writes.
    """

    engine: EngineOptions = EngineOptions()
    split_bytes: int | None = None
    state_path: str | None = None
    coordinator_dirs: tuple[str, ...] = ()
    timelines: Mapping[str, TimelineStart] = MappingProxyType({})
    tables: TableTarget | None = None
    checkpoint_dir: str | None = None


class AuditResult(NamedTuple):
    """The reports, notes for people, the basis of the exit status, and the state to keep.

    `audited` are the directories of the reports.
    """

    audit: Audit
    notes: list[str]
    is_corrupt: bool
    is_unreadable: bool
    has_wrong_end: bool
    state: AuditState | None
    pieces: Sequence[ReadPiece]
    audited: Sequence[Audited]

    def save_state(self) -> None:
        """Save the findings for the next run, if requested. Raises AccessError."""
        if self.state is not None:
            self.state.save(self.pieces)


def run_audit(
    paths: Sequence[str], options: AuditOptions, engine: EngineRun | None = None
) -> AuditResult:
    """Audit all partitions of the PATHs.

    `engine`: an engine for these options that is also used elsewhere.

    Raises:
        EoctlError: nothing can be read at all, Spark does not start, or it gave the job up.
    """
    state = None
    if options.state_path is not None:
        state = AuditState(options.state_path, f"eoctl {__version__}")
        state.require_writable()
    shelf = Shelf()
    checkpoint = None
    if options.checkpoint_dir is not None:
        checkpoint = AuditCheckpoint(options.checkpoint_dir, f"eoctl {__version__}", shelf)
        checkpoint.require_writable()
    listing = list_places(paths)
    notes = [VERIFIED, *map(str, listing.problems), *listing.notes]
    known: list[ReadPiece] = []
    wanted = list(listing.places)
    if state is not None:
        known, wanted = state.take(listing.places, options.timelines)
    engine_place = len(notes)
    notes += () if state is None else state.notes
    if known:
        count = f"{len(known)} of {len(listing.places)} segments"
        notes.append(f"{count} are unchanged, and taken from {options.state_path}")
    done: dict[str, HeldSummary] = {}
    if checkpoint is not None:
        done, wanted = checkpoint.take(wanted)
        notes += checkpoint.notes
        if done:
            count = f"{len(done)} of {len(listing.directories)} directories"
            notes.append(f"{count} are unchanged, and taken from {options.checkpoint_dir}")
    if known or done:
        notes.append("verified before, not read again: what is unchanged")
    pieces = list(known)
    with ExitStack() as stack:
        engine = engine or stack.enter_context(EngineRun(options.engine))
        notes.insert(engine_place, engine.choose().why)
        if options.tables is not None:
            options.tables.require_in(engine.session({each.directory for each in wanted}))
        done |= _read(pieces, wanted, engine, options, _Keeping(shelf, checkpoint))
    found = _summaries(listing, pieces, done)
    ids = _transactional_ids(listing, options, notes)
    segments = dict(by_directory(listing.places))
    audited = [
        Audited.of(
            each,
            tuple(segments.get(each.directory, ())),
            found[each.directory],
            listing.acknowledged_of(each.directory),
        )
        for each in listing.directories
    ]
    damages = [each.outline.damage for each in audited if each.outline is not None]
    notes += _damage_notes(damages)
    unknown = [
        f"{each.place.directory}: {found}"
        for each in audited
        if each.outline is not None
        for found in each.outline.behind.unknown
    ]
    notes += first_of(unknown, "transactions of unknown outcome")
    notes += _remote_notes(listing)
    problems = listing.problems
    doubts = doubts_around(listing.log_dirs)
    notes += doubts
    return AuditResult(
        audit=Audit(audited, ids),
        notes=notes,
        is_corrupt=any(isinstance(each, FormatError) for each in problems)
        or any(each.is_corrupt for each in damages),
        is_unreadable=any(isinstance(each, AccessError) for each in problems)
        or any(each.is_unreadable for each in damages)
        or bool(doubts)
        or bool(unknown),
        has_wrong_end=any(each.has_wrong_end for each in damages),
        state=state,
        pieces=pieces if state is not None else (),
        audited=audited,
    )


class _Keeping(NamedTuple):
    """The storage of results: for this run, and for a later run."""

    shelf: Shelf
    checkpoint: AuditCheckpoint | None


def _read(
    pieces: list[ReadPiece],
    wanted: Sequence[SegmentPlace],
    engine: EngineRun,
    options: AuditOptions,
    keeping: _Keeping,
) -> dict[str, HeldSummary]:
    """Read segments, and return joined results by directory. Other results are added to pieces.

    With a checkpoint, some directories are read at a time, joined, and saved there.
    """
    if not wanted:
        return {}
    if engine.choose().is_spark:
        session = engine.session({each.directory for each in wanted})
        from eoctl.spark.executors import cores_of

        cores = cores_of(session)
        read = partial(_read_on_spark, session, cores, options, keeping.shelf)
    else:
        cores = jobs_of(options.engine)
        read = partial(_read_here, options)
    if keeping.checkpoint is None:
        return read(wanted, pieces)
    found: dict[str, HeldSummary] = {}
    wave_bytes = WAVE_PIECES_PER_CORE * cores * (options.split_bytes or DEFAULT_SPLIT_BYTES)
    for wave in waves_of(wanted, wave_bytes):
        of_wave: list[ReadPiece] = []
        part = read(wave, of_wave)
        for path, group in _pieces_of(of_wave):
            part[path] = keeping.shelf.put(pack_partition(join_partition(group)))
        keeping.checkpoint.keep(part, wave)
        found |= part
    return found


def _read_on_spark(
    session: Any,
    cores: int,
    options: AuditOptions,
    shelf: Shelf,
    wanted: Sequence[SegmentPlace],
    pieces: list[ReadPiece],
) -> dict[str, HeldSummary]:
    """Read on Spark, which joins directories. With a state, pieces are returned instead."""
    from eoctl.spark.audit import read_pieces, summarize_directories

    total_bytes = sum(each.file_bytes for each in wanted)
    size = options.split_bytes or split_bytes_for(total_bytes, TASKS_PER_CORE * cores)
    splits = [*_with_timelines(plan_places(wanted, size), options)]
    if options.state_path is None:
        return summarize_directories(session, splits, shelf)
    pieces += read_pieces(session, splits)
    return {}


def _read_here(
    options: AuditOptions, wanted: Sequence[SegmentPlace], pieces: list[ReadPiece]
) -> dict[str, HeldSummary]:
    """Read with processes on this machine."""
    from recovery.audit.local_workers import read_pieces

    # All processes then have work to the end: a split costs some milliseconds.
    total_bytes = sum(each.file_bytes for each in wanted)
    jobs = jobs_of(options.engine)
    size = max(DEFAULT_SPLIT_BYTES, total_bytes // (PIECES_PER_JOB * jobs))
    splits = [*_with_timelines(split_places(wanted, options.split_bytes or size), options)]
    with Progress("reading", total_bytes) as progress:
        pieces += read_pieces(splits, jobs, progress.advance, anywhere(read_split))
    return {}


def _summaries(
    listing: Listing, pieces: Iterable[ReadPiece], joined: dict[str, HeldSummary]
) -> dict[str, HeldSummary | None]:
    """Return the summaries by directory, None for directories that could not be listed."""
    joined |= {path: LoadedSummary(join_partition(group)) for path, group in _pieces_of(pieces)}
    failed = {getattr(each, "path", "") for each in listing.problems}
    return {
        each.directory: joined.get(
            each.directory,
            None if each.directory in failed else LoadedSummary(join_partition(())),
        )
        for each in listing.directories
    }


def _with_timelines(splits: Iterable[Split], options: AuditOptions) -> Iterator[Split]:
    """Request the wanted timelines."""
    for each in splits:
        wanted = options.timelines.get(each.place.directory)
        yield each if wanted is None else each._replace(timeline=wanted)


def _pieces_of(pieces: Iterable[ReadPiece]) -> Iterator[tuple[str, list[ReadPiece]]]:
    groups: dict[str, list[ReadPiece]] = {}
    for each in pieces:
        groups.setdefault(each.split.place.directory, []).append(each)
    yield from groups.items()


def _transactional_ids(
    listing: Listing, options: AuditOptions, notes: list[str]
) -> dict[tuple[str | None, int], str]:
    """Read `__transaction_state`, listed or next to the PATHs, by cluster and producer id."""
    beside = sorted({_coordinators_beside(each.directory) for each in listing.directories})
    listings = [listing]
    for path in (*beside, *options.coordinator_dirs):
        try:
            listings.append(list_places([path]))
        except AccessError:
            if path in options.coordinator_dirs:
                raise
    clusters = {each.directory: each.cluster for found in listings for each in found.directories}
    by_cluster: dict[str | None, dict[str, SegmentPlace]] = {}
    for place in (place for found in listings for place in found.places):
        if place.topic == TRANSACTION_STATE_TOPIC:
            by_cluster.setdefault(clusters[place.directory], {})[place.path] = place
    ids: dict[tuple[str | None, int], str] = {}
    for cluster, places in by_cluster.items():
        found_ids, problems = read_transactional_ids(places[path] for path in sorted(places))
        # A directory that was copied out of its log dir does not name its cluster.
        meant = {cluster}
        if len(by_cluster) == 1:
            meant |= (
                {None} if cluster is not None else {each.cluster for each in listing.directories}
            )
        ids.update(((one, each), name) for each, name in found_ids.items() for one in meant)
        notes += problems
    return ids


def _coordinators_beside(directory: str) -> str:
    """Return a pattern. The query of a URI, such as `?region=...`, is kept."""
    name = f"{TRANSACTION_STATE_TOPIC}-*"
    if is_uri(directory):
        uri = Uri.parse(directory)
        return str(uri._replace(path=f"{uri.path.rpartition('/')[0]}/{name}"))
    return f"{directory.rstrip('/').rpartition('/')[0]}/{name}"


def _remote_notes(listing: Listing) -> Iterator[str]:
    first_bases: dict[str, int] = {}
    for each in listing.places:
        base_offset = first_bases.get(each.directory, each.base_offset)
        first_bases[each.directory] = min(base_offset, each.base_offset)
    local = [each for each, base in first_bases.items() if base and "://" not in each]
    for reported in report_remote(local):
        yield f"{reported}: they are not part of it"


def _damage_notes(damages: Iterable[FoundDamage]) -> list[str]:
    notes = []
    for each in damages:
        where = "on that partition: --report corrupt lists them"
        notes += first_of([*map(str, each.findings)], where, each.findings_count)
    return notes


def exit_status(result: AuditResult, fail_on: Severity) -> int:
    """Return 1 for findings at or above a severity, 5 if a part could not be read."""
    rows = result.audit.rows("partitions")
    is_warning = fail_on != Severity.ERROR and (
        any(_figure(row, name) for row in rows for name in WARNING_FIGURES)
        or bool(result.audit.rows("torn"))
        or any(row[2] is False for row in result.audit.rows("replicas"))
    )
    is_note = fail_on == Severity.NOTE and any(_figure(row, "open_transactions") for row in rows)
    if result.is_corrupt or is_warning or is_note:
        return EXIT_FINDINGS
    if result.is_unreadable:
        return EXIT_SKIPPED
    return EXIT_FINDINGS if result.has_wrong_end else EXIT_OK


def _figure(row: Sequence[object], name: str) -> object:
    from recovery.audit.reports import COLUMNS

    return row[COLUMNS["partitions"].index(name)]
