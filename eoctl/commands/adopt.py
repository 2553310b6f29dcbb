"""`eoctl adopt`: partitions of dead brokers, under a new cluster that a broker starts on."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clock import resolve_now, wall_ms
from eoctl.commands.init import identity_of, node_notes, version_of, voter_of
from eoctl.commands.repair import cost_of
from eoctl.commands.shared.changes import ChangeCommand, PlanAnswer, Planned
from eoctl.commands.shared.replica_choice import SourceSearch, choose_copies
from eoctl.messages import first_of, listing
from eoctl.output import OutputFormat, Report, emit
from eoctl.parameters import Panel, argument, option, records_option
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.checks.context.broker_version import FEATURES, METADATA_VERSION, BrokerVersion
from recovery.new_log_dir.adopted_topics import SecurityRecords, WantedTopics, adopted_settings
from recovery.new_log_dir.adoption import (
    Adoption,
    adoption_steps,
    next_producer_id,
    other_owners,
    require_one_file_system,
    require_room,
)
from recovery.new_log_dir.dead_brokers import find_dead_brokers
from recovery.new_log_dir.records import require_free
from recovery.repair.plan import lost_ranges
from recovery.repair.strategies import Strategy
from storage.counts import agreeing, counted
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EXIT_SKIPPED, FormatError, RefusedError, UsageError, pasted
from storage.file_names import METADATA_TOPIC, DirState, TopicPartition
from storage.formats.partition_metadata import format_uuid, parse_uuid
from storage.formats.producer_id_record import FIRST_ID as FIRST_LEASED_ID
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.commands.shared.changes import Done
    from eoctl.commands.shared.replica_choice import FoundCopies
    from recovery.new_log_dir.adoption import TakenCopy
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected


@with_change()
def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[LOG-DIR]...", help="Log dirs of dead brokers, or partitions of them."),
    ] = None,
    to: Annotated[
        str | None, option(metavar="NEW-LOG-DIR", help="An empty directory, or one that is made.")
    ] = None,
    copy: Annotated[bool, option("--copy", help="Copy all files, without another word.")] = False,
    link: Annotated[
        bool, option("--link", help="Second names for .log files of closed segments.")
    ] = False,
    move: Annotated[
        bool, option("--move", help="As --link, and then move the files out of the sources.")
    ] = False,
    prefer: Annotated[
        list[str] | None,
        records_option(metavar="DIR", help="Prefer replicas in it. Repeatable."),
    ] = None,
    topic_id: Annotated[
        list[str] | None,
        option(metavar="NAME=ID", help="Id of a topic, if no file has it. Repeatable."),
    ] = None,
    partitions: Annotated[
        list[str] | None,
        option(metavar="NAME=N", help="How many partitions a topic has. Repeatable."),
    ] = None,
    fill_holes: Annotated[
        bool, option("--fill-holes", help="Partitions without a copy become empty ones.")
    ] = False,
    repair: Annotated[
        Strategy | None,
        option(metavar="as-broker|salvage", help="Repair damage in the copy."),
    ] = None,
    with_security: Annotated[
        bool, option("--with-security", help="Users' SCRAM credentials and ACLs, too.")
    ] = False,
    keep_retention: Annotated[
        bool,
        option("--keep-retention", help="Retention as it was, whatever a first start deletes."),
    ] = False,
    node_id: Annotated[
        int | None,
        option(min=0, max=INT32_MAX, metavar="N", help="node.id.", show_default="a source's"),
    ] = None,
    cluster_id: options.ClusterId = None,
    directory_id: options.DirectoryId = None,
    broker_version: Annotated[
        str | None,
        option(metavar="X.Y", help="The release that will start there.", show_default="as before"),
    ] = None,
    standalone: options.Standalone = None,
    metadata_dir: Annotated[str | None, options.METADATA_DIR._replace(panel=Panel.WHAT)] = None,
    now: options.Now = None,
    change: ChangeOptions = PLAN_ONLY,
    jobs: options.Jobs = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Bring partitions up whose controllers, or whose other brokers, are lost.

    A new log dir with the best copy of each partition, one replica each, under a new cluster id.
    The sources are not changed without --move.
    """
    from eoctl.commands.shared.changes import run_change

    if not paths or to is None:
        raise UsageError(
            "no LOG-DIR given" if not paths else "no --to given",
            next_step="eoctl adopt LOG-DIR... --to NEW-LOG-DIR",
        )
    ways = [way for way, wanted in zip(Way, (copy, link, move), strict=True) if wanted]
    if len(ways) > 1:
        raise UsageError(f"--{ways[0]} and --{ways[1]}: one of them")
    if repair is Strategy.MOVE_AWAY:
        raise UsageError(
            "--repair move-away needs another replica to fetch from, and there is none",
            next_step="--repair salvage, or --repair as-broker",
        )
    wanted = AdoptOptions(
        to=to,
        way=ways[0] if ways else Way.COPY,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=directory_id,
        broker_version=broker_version,
        standalone=standalone,
        metadata_dir=metadata_dir,
        preferred=tuple(prefer or ()),
        topic_ids=tuple(topic_id or ()),
        partitions=tuple(partitions or ()),
        fills_holes=fill_holes,
        has_security=with_security,
        keeps_retention=keep_retention,
        repair=repair,
        now=now,
    )
    adoption = adopt_command(paths, wanted, options.process_count(jobs), is_kept=change.is_kept)
    return run_change(adoption, change, output)


# -- the answer of an adoption: the losses, and the effects of the first start


TIMEOUT_SETTING = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
A_DAY_MS = 86_400_000


def adopt_answer(adoption: Adoption, found: FoundCopies) -> PlanAnswer:
    """Sum up a plan."""
    partitions = sum(len(each.leader_epochs) for each in adoption.starts)
    does = (
        f"{adoption.log_dir} with {counted(len(adoption.topics), 'topic')},"
        f" {counted(partitions, 'partition')}"
    )
    losses = list(_losses(found))
    return PlanAnswer(
        verbs=("make", "made"),
        does=(does,),
        loses=("; ".join(losses),) if losses else ("nothing that is in the sources",),
        is_loss=bool(losses),
    )


def _losses(found: FoundCopies) -> Iterator[str]:
    others = [each for each in found.choices if each.lost_records_count != 0]
    if any(each.lost_records_count is None for each in others):
        yield "the number of additional records in other copies is unknown"
    elif others:
        lost = sum(each.lost_records_count or 0 for each in others)
        yield f"{counted(lost, 'record')} of other copies"
    repaired = [each.repaired for each in found.taken if each.repaired is not None]
    damaged = cost_of(repaired).lost
    if damaged.is_something:
        yield f"in what is damaged: {damaged.text}"


def adopt_notes(adoption: Adoption, found: FoundCopies, way: str) -> Iterator[str]:
    """Yield notes on the first start, and on lost data."""
    yield from found.notes
    yield from _note_of_copies(found)
    yield from _note_of_start(found)
    yield from _note_of_transactions(found)
    yield from _note_of_groups(found)
    yield from _note_of_sources(adoption, found, way)
    yield (
        f"each partition has one replica; the next producer id is {adoption.next_producer_id:,};"
        " verified: headers and checksums of all batches that are taken"
    )
    if found.brokers.image is None:
        yield (
            "no metadata of the old cluster. Settings are guessed from the logs, and partitions "
            "after the last partition that is here are not missed (--partitions NAME=N)"
        )


def _note_of_copies(found: FoundCopies) -> Iterator[str]:
    lossy = [each for each in found.choices if each.lost_records_count != 0]
    yield from first_of([f"{each.key}: {each.reason}" for each in lossy], "partitions")
    holes = [each for taken in found.taken for each in taken.survey.holes]
    yield from first_of([f"{each} are lost" for each in holes], "holes")
    for each in found.taken:
        if each.repaired is not None:
            lost = cost_of([each.repaired]).lost.text
            yield f"{each.copy.path}: repaired for the copy (lost: {lost}). The source stays"
    for path in found.brokers.set_aside[:3]:
        yield (
            f"{path}: left out, a broker had set it aside; to have it taken, give it the name of a"
            " partition first"
        )
    if len(found.brokers.set_aside) > 3:
        yield f"and {len(found.brokers.set_aside) - 3} more directories that were set aside"


def _note_of_start(found: FoundCopies) -> Iterator[str]:
    recovered = sum(each.survey.recovered_bytes for each in found.taken)
    if recovered:
        yield f"a start verifies {recovered:,} bytes of .log files"
    cut = [each for each in found.taken if _is_cut(each)]
    yield from first_of(
        [
            f"{each.key}: a start truncates the log at {each.survey.start_end_offset}, of "
            f"{each.survey.end_offset}"
            for each in cut
        ],
        "partitions that a start truncates",
    )
    yield from first_of(
        [
            f"{each.key}: a compaction did not end there. A start replaces old"
            f" segments by {counted(each.survey.swapped_count, 'new segment')}"
            for each in found.taken
            if each.survey.swapped_count
        ],
        "partitions with a compaction that did not end",
    )
    unloaded = [each for each in found.taken if each.survey.start_end_offset is None]
    yield from (
        f"{each.key}: a broker would not load it as it is; see eoctl check {pasted(each.copy.path)}"
        for each in unloaded
        if each.repaired is None and each.survey.log_bytes
    )


def _is_cut(taken: TakenCopy) -> bool:
    survey = taken.survey
    is_shorter = survey.start_end_offset is not None and survey.start_end_offset < survey.end_offset
    return taken.repaired is None and is_shorter


def _note_of_transactions(found: FoundCopies) -> Iterator[str]:
    coordinators = found.coordinators
    if coordinators.ongoing:
        ids = listing(coordinators.ongoing, "transactional ids")
        yield (
            f"{counted(len(coordinators.ongoing), 'transaction')} open ({ids}). A start aborts them"
            f" once they time out; {TIMEOUT_SETTING}={A_DAY_MS} in server.properties keeps them"
            " for a day"
        )
    if coordinators.prepared:
        ids = listing(coordinators.prepared, "transactional ids")
        yield (
            f"{counted(len(coordinators.prepared), 'transaction')} decided but not ended ({ids}). A"
            " start carries the decisions out"
        )
    if coordinators.expired_ids_count:
        yield (
            f"{coordinators.expired_ids_count} of {coordinators.transactional_ids_count}"
            " transactional ids have been idle for seven days. A start forgets them, unless"
            " transactional.id.expiration.ms is set higher first"
        )
    hanging = [
        f"{each.key}: the transaction of producer {opened.producer_id} is open since offset"
        f" {opened.first_offset}, and no coordinator here knows of it. Consumers wait there, see"
        " eoctl txn hanging"
        for each in found.taken
        for opened in each.survey.open_transactions or ()
        if opened.producer_id not in coordinators.ongoing_producer_ids
    ]
    yield from first_of(hanging, "transactions that nobody ends")


def _note_of_groups(found: FoundCopies) -> Iterator[str]:
    coordinators = found.coordinators
    expired_count = coordinators.expired_offsets_count
    if expired_count:
        yield (
            f"{counted(expired_count, 'offset')} of groups without members"
            f" {agreeing(expired_count, 'is', 'are')} older than"
            " seven days. A broker deletes them minutes after its start, unless its"
            " offsets.retention.minutes is set higher first"
        )
    yield from first_of(
        [
            f"group {each.group}: has {each.offset} committed for {each.key}, whose log ends at"
            f" {each.end_offset}. auto.offset.reset decides where it goes on"
            for each in coordinators.beyond_end
        ],
        "committed offsets beyond the end of their log",
    )
    yield from first_of(list(coordinators.problems), "problems")


def _note_of_sources(adoption: Adoption, found: FoundCopies, way: str) -> Iterator[str]:
    if way == "link":
        yield (
            ".log files of closed segments are one file with the source. Neither a broker nor eoctl"
            " writes to them, and what one of them deletes stays for the other"
        )
    elif way == "move":
        yield (
            "the sources keep their directories with partition.metadata; what was in them stays in"
            " the backup, if one is kept, until it is pruned"
        )
    others = other_owners(
        adoption.log_dir, [str(Path(each.copy.path).parent) for each in found.taken]
    )
    if others:
        yield (
            f"{listing(others, 'sources')}: of another owner than {adoption.log_dir} will be. Give"
            " it to the user that the broker runs as (chown -R) before the start"
        )


# -- from the options of `adopt` to a plan


class Way(StrEnum):
    """The ways to get files into the new log dir."""

    COPY = "copy"
    LINK = "link"
    MOVE = "move"


class AdoptOptions(NamedTuple):
    """The command line options."""

    to: str
    way: Way = Way.COPY
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    broker_version: str | None = None
    standalone: str | None = None
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
    """A partition of the new log dir. Without a source it is empty."""

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
    """Return the command as `run_change` needs it. `is_kept`: the plan is applied or saved."""
    nothing = Planned(show=lambda _done, _output: None, nothing="it is a log dir already")

    @cache  # a concurrent change makes the plan stale, which apply detects
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
    """Return the partitions whose log dirs are changed too."""
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
                voter=adoption.voter,
            ),
            *adopt_notes(adoption, found, options.way),
            *notes,
            moment.describe(),
        ],
        answer=lambda: adopt_answer(adoption, found),
        status=lambda: EXIT_SKIPPED if is_short else EXIT_OK,
    )


def _version(option: str | None, image: ClusterImage | None) -> BrokerVersion:
    """Return the wanted release, else the release of the old cluster's features, else CHECKED."""
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
    reported: list[str] = []
    surveys = {each.key: each.survey for each in found.taken}
    settings = {}
    for topic in found.topics:
        own = [survey for key, survey in surveys.items() if key.topic == topic.name]
        chosen = adopted_settings(
            topic.name, found.brokers.image, own, keeps_retention=options.keeps_retention
        )
        settings[topic.name] = chosen.settings
        reported += chosen.notes
    notes += first_of(reported, "settings")
    if not options.keeps_retention:
        notes.append(
            "nothing is deleted or compacted until retention.ms, retention.bytes and "
            "min.compaction.lag.ms of the topics are set back, except in the topics of "
            "coordinators"
        )
    more = _security(found, options.metadata_dir, notes) if options.has_security else ()
    node_id = options.node_id
    if node_id is None:
        node_id = found.brokers.node_ids[0] if found.brokers.node_ids else 1
    node = identity_of(options.cluster_id, node_id, options.directory_id)
    adoption = Adoption(
        log_dir=options.to,
        node=node,
        version=version,
        topics=found.topics,
        settings=settings,
        taken=found.taken,
        next_producer_id=next_producer_id(_known_producer_ids(found)),
        more=more,
        voter=voter_of(options.standalone, node, version),
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
    """Return how many offsets a start truncates from a log that is taken unchanged."""
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
