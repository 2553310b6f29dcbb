"""From the options of `adopt` to a plan."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clock import resolve_now, wall_ms
from eoctl.output import Report, emit
from eoctl.runs.begin.adopt_words import adopt_answer, adopt_notes
from eoctl.runs.begin.chosen_copies import SourceSearch, choose_copies
from eoctl.runs.begin.init import identity_of, node_notes, version_of
from eoctl.runs.changes.change_command import ChangeCommand, Planned
from eoctl.runs.notes import first_of
from recovery.begin.adopted_topics import SecurityRecords, WantedTopics, adopted_settings
from recovery.begin.adoption import (
    Adoption,
    adoption_steps,
    next_producer_id,
    require_one_file_system,
    require_room,
)
from recovery.begin.dead_brokers import find_dead_brokers
from recovery.begin.records import require_free
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.checks.grounds.broker_version import FEATURES, METADATA_VERSION, BrokerVersion
from recovery.repair.plan import lost_ranges
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EXIT_SKIPPED, FormatError, RefusedError, UsageError
from storage.file_names import METADATA_TOPIC, DirState, TopicPartition
from storage.formats.partition_metadata import format_uuid, parse_uuid
from storage.formats.producer_id_record import FIRST_ID as FIRST_LEASED_ID
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eoctl.output import OutputFormat
    from eoctl.runs.begin.chosen_copies import FoundCopies
    from eoctl.runs.changes.change_command import Done
    from recovery.begin.adoption import TakenCopy
    from recovery.repair.strategies import Strategy
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected


class Way(StrEnum):
    """How files come into the new log dir."""

    COPY = "copy"
    LINK = "link"
    MOVE = "move"


class AdoptOptions(NamedTuple):
    """What the command line says."""

    to: str
    way: Way = Way.COPY
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    broker_version: str | None = None
    metadata_dir: str | None = None
    preferred: tuple[str, ...] = ()
    topic_ids: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    fills_holes: bool = False
    has_security: bool = False
    keeps_retention: bool = False
    repair: Strategy | None = None
    now: str | None = None


class AdoptedRow(NamedTuple):
    """A partition of the new log dir; without a source it is empty."""

    topic: str
    partition: int
    source: str | None
    broker: int | None
    log_start_offset: int
    log_end_offset: int
    leader_epoch: int
    open_transactions_count: int | None
    reason: str
    applied: bool


def adopt_command(
    paths: Sequence[str], options: AdoptOptions, jobs: int, *, is_kept: bool
) -> ChangeCommand:
    """Return what `run_change` needs to know of a call; `is_kept`: it applies or saves the plan."""
    nothing = Planned(show=lambda _done, _output: None, nothing="it is a log dir already")

    @cache  # what changes meanwhile makes the plan stale, which is seen before it is applied
    def planned() -> Planned:
        return _planned(paths, options, jobs, is_kept=is_kept)

    return ChangeCommand(
        name="adopt",
        selected=lambda: _moved(paths) if options.way is Way.MOVE else [],
        arguments=lambda: [_arguments_of(paths, options)],
        plan=planned,
        if_done=nothing,
        begins=absolute_path(options.to),
        shows_steps=False,
    )


def _moved(paths: Sequence[str]) -> list[Selected]:
    """Those whose log dirs are changed, too."""
    return [
        each
        for each in discover(paths).selected
        if each.partition.name.topic != METADATA_TOPIC
        and each.partition.name.state is DirState.LIVE
    ]


def _arguments_of(paths: Sequence[str], options: AdoptOptions) -> dict[str, Any]:
    return {
        "sources": [absolute_path(each) for each in paths],
        **{
            name: list(each) if isinstance(each, tuple) else each
            for name, each in options._asdict().items()
        },
        "to": absolute_path(options.to),
    }


def _planned(paths: Sequence[str], options: AdoptOptions, jobs: int, *, is_kept: bool) -> Planned:
    require_free(options.to)
    moment = resolve_now(options.now, paths)
    brokers = find_dead_brokers(paths, options.metadata_dir)
    version = _version(options.broker_version, brokers.image)
    found = choose_copies(
        brokers,
        SourceSearch(
            preferred=options.preferred,
            wanted=_wanted(options),
            repair=options.repair,
            jobs=jobs,
        ),
        moment,
        version,
    )
    sources = [each.copy.path for each in found.taken]
    if options.way is not Way.COPY:
        require_one_file_system(options.to, sources, f"--{options.way}")
    adoption, notes = _adoption(found, options, version)
    done = adoption_steps(
        adoption,
        timestamp_ms=wall_ms(),
        is_linked=options.way is not Way.COPY,
        is_moved=options.way is Way.MOVE,
    )
    require_room(options.to, done.copied_bytes, sum(len(e.leader_epochs) for e in adoption.starts))
    price = _price(adoption, found, done.copied_bytes)
    plan = make_plan("adopt", _arguments_of(paths, options), done.steps, price, done.sources)
    rows = list(_rows(adoption, found))

    def show(done: Done, output: OutputFormat) -> None:
        applied = [each._replace(applied=done.is_applied) for each in rows]
        emit(Report("adopted", AdoptedRow._fields, applied), output)

    is_shown = is_kept or options.cluster_id is not None
    is_short = brokers.image is not None and not brokers.image.is_complete
    return Planned(
        plans=(plan,),
        show=show,
        notes=[
            *node_notes(
                options.to,
                adoption.node,
                version,
                is_cluster_shown=is_shown,
                is_drawn_again=not is_shown,
            ),
            *adopt_notes(adoption, found, options.way),
            *notes,
            moment.describe(),
        ],
        answer=lambda: adopt_answer(adoption, found),
        status=lambda: EXIT_SKIPPED if is_short else EXIT_OK,
    )


def _version(option: str | None, image: ClusterImage | None) -> BrokerVersion:
    """That of the call, else the one whose features the old cluster had, else the newest."""
    level = 0 if image is None else image.features.get(METADATA_VERSION, 0)
    if option is None and level:
        lines = [since for since, known in FEATURES[METADATA_VERSION] if known >= level]
        if lines:
            return BrokerVersion(*lines[0])
    return version_of(option)


def _wanted(options: AdoptOptions) -> WantedTopics:
    topic_ids: dict[str, bytes] = {}
    for text in options.topic_ids:
        name, has_id, value = text.rpartition("=")
        try:
            topic_ids[name] = parse_uuid(value)
        except FormatError as error:
            has_id = ""
            problem = error.message
        else:
            problem = "NAME=ID is needed"
        if not has_id or not any(topic_ids[name]):
            raise UsageError(
                f"--topic-id {text}: {problem}", next_step="eoctl init --ids   # shows new ones"
            )
    counts: dict[str, int] = {}
    for text in options.partitions:
        name, _, value = text.rpartition("=")
        is_number = value.isdecimal() and value.isascii() and 0 < int(value) <= INT32_MAX
        if not name or not is_number:
            raise UsageError(f"--partitions {text}: NAME=N is needed, such as orders=12")
        counts[name] = int(value)
    return WantedTopics(topic_ids, counts, options.fills_holes)


def _adoption(
    found: FoundCopies, options: AdoptOptions, version: BrokerVersion
) -> tuple[Adoption, list[str]]:
    notes: list[str] = []
    told: list[str] = []
    surveys = {each.key: each.survey for each in found.taken}
    settings = {}
    for topic in found.topics:
        own = [survey for key, survey in surveys.items() if key.topic == topic.name]
        chosen = adopted_settings(
            topic.name, found.brokers.image, own, keeps_retention=options.keeps_retention
        )
        settings[topic.name] = chosen.settings
        told += chosen.notes
    notes += first_of(told, "settings")
    if not options.keeps_retention:
        notes.append(
            "nothing is deleted or compacted until retention.ms, retention.bytes and"
            " min.compaction.lag.ms of the topics are set back, but in those of coordinators"
        )
    more = _security(found, options.metadata_dir, notes) if options.has_security else ()
    node_id = options.node_id
    if node_id is None:
        node_id = found.brokers.node_ids[0] if found.brokers.node_ids else 1
    adoption = Adoption(
        log_dir=options.to,
        node=identity_of(options.cluster_id, node_id, options.directory_id),
        version=version,
        topics=found.topics,
        settings=settings,
        taken=found.taken,
        next_producer_id=next_producer_id(_known_producer_ids(found)),
        more=more,
    )
    return adoption, notes


def _known_producer_ids(found: FoundCopies) -> Iterable[int]:
    yield from (each.survey.last_producer_id for each in found.taken)
    yield from (each.producer_id for each in found.seen)
    yield from (each for each in found.coordinators.producer_ids if each < FIRST_LEASED_ID)
    image = found.brokers.image
    if image is not None and image.next_producer_id is not None:
        yield image.next_producer_id - 1


def _security(found: FoundCopies, metadata_dir: str | None, notes: list[str]) -> tuple[bytes, ...]:
    paths = [each.path for each in found.brokers.log_dirs]
    if metadata_dir is not None:
        paths = [metadata_dir]
    logs = [
        Partition.of(each)
        for each in discover(paths).selected
        if each.partition.name.topic == METADATA_TOPIC
        and each.partition.name.state is DirState.LIVE
    ]
    if not logs:
        raise RefusedError(
            f"--with-security: no {METADATA_TOPIC}-0 there, which would have users and ACLs",
            next_step="--metadata-dir DIR, or without --with-security",
        )
    ends = [(end.offset if (end := each.log_end()) else 0, each) for each in logs]
    newest = max(ends, key=lambda each: each[0])[1]
    read = SecurityRecords(newest)
    notes += read.problems
    users = read.users_count
    notes.append(f"{newest.path}: {users} SCRAM credentials and {len(read.values) - users} ACLs")
    return read.values


def _price(adoption: Adoption, found: FoundCopies, copied_bytes: int) -> dict[str, Any]:
    lost = [each.lost_records_count for each in found.choices]
    repaired = [each.repaired for each in found.taken if each.repaired is not None]
    return {
        "cluster_id": adoption.node.cluster_id,
        "node_id": adoption.node.node_id,
        "directory_id": format_uuid(adoption.node.directory_id),
        "broker_version": str(adoption.version),
        "topics_count": len(adoption.topics),
        "partitions_count": sum(len(each.leader_epochs) for each in adoption.starts),
        "empty_partitions_count": sum(len(each.holes) for each in adoption.topics),
        "next_producer_id": adoption.next_producer_id,
        "copied_bytes": copied_bytes,
        "lost_in_other_copies_records_count": None if None in lost else sum(e or 0 for e in lost),
        "lost_by_repair_offsets_count": _sum(each.lost_offsets_count for each in repaired),
        "lost_by_repair_records_count": sum(each.lost_records_count for each in repaired),
        "lost_ranges": lost_ranges(repaired),
        "cut_at_start_offsets_count": sum(map(cut_offsets, found.taken)),
        "committed_offsets_beyond_end_count": len(found.coordinators.beyond_end),
        "open_transactional_ids_count": len(found.coordinators.ongoing),
    }


def cut_offsets(taken: TakenCopy) -> int:
    """How many offsets a start cuts off a log that is taken as it is."""
    start_end = taken.survey.start_end_offset
    if taken.repaired is not None or start_end is None:
        return 0
    return max(taken.survey.end_offset - start_end, 0)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(each or 0 for each in known)


def _rows(adoption: Adoption, found: FoundCopies) -> Iterable[AdoptedRow]:
    reasons = {each.key: each.reason for each in found.choices}
    taken = {each.key: each for each in found.taken}
    for topic in adoption.starts:
        for number, epoch in sorted(topic.leader_epochs.items()):
            key = TopicPartition(topic.name, number)
            source = taken.get(key)
            opened = None if source is None else source.survey.open_transactions
            yield AdoptedRow(
                topic=topic.name,
                partition=number,
                source=None if source is None else source.copy.path,
                broker=None if source is None else source.copy.node_id,
                log_start_offset=0 if source is None else source.survey.start_offset,
                log_end_offset=0 if source is None else source.end_offset,
                leader_epoch=epoch,
                open_transactions_count=None if opened is None else len(opened),
                reason=reasons.get(key, "no copy is here: empty"),
                applied=False,
            )
