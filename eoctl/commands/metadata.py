"""`eoctl metadata`: leaders, ISR, ELR, brokers and settings, now and over time."""

from __future__ import annotations

import re
from collections import deque
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl.commands.shared.metadata_state import (
    GivenMetadata,
    diverged_note,
    moment_notes,
    newest_copy,
    parse_moment,
    reading_notes,
    require_reached,
    shown_value,
    wanted_topics,
)
from eoctl.messages import Said, listing, moment
from eoctl.options import TERMINAL_ROWS, Limit, MetadataDir, Output, TopicPatterns
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import argument, option
from eoctl.progress import Progress
from recovery.cluster.clusters import counted_to, voters_of
from recovery.cluster.history import (
    BrokerChange,
    FeatureChange,
    PartitionChange,
    QuorumLeaderChange,
    SettingChange,
    Unread,
    read_history,
)
from recovery.cluster.in_sync import AckStanding, UnderIsrSpans, in_sync_at, record_origins
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.dirs.partition import Partition
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, AccessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.commands.shared.metadata_state import StateRun
    from eoctl.output import Report
    from recovery.cluster.history import Change
    from recovery.cluster.in_sync import InSync, PartitionSum, RecordOrigin, UnderIsrSpan
    from recovery.elections.advice import TopicClaims


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[LOG-DIR]...", help="Log dirs of brokers and controllers."),
    ] = None,
    at: Annotated[
        str | None,
        option(
            "--at",
            metavar="TIME|OFFSET|now",
            help="The moment: a time, or the offset of a metadata record.",
            show_default="now",
        ),
    ] = None,
    history: Annotated[
        bool, option("--history", help="Each change until then, and what they come to.")
    ] = False,
    acknowledged: Annotated[
        str | None,
        option(metavar="TOPIC-N:OFFSET", help="The ISR when that offset was acknowledged."),
    ] = None,
    topic: TopicPatterns = None,
    durability: Annotated[
        bool, option("--durability", help="Show which failures each topic survives.")
    ] = False,
    settings: Annotated[
        bool, option("--settings", help="Also settings that nobody has set.")
    ] = False,
    metadata_dir: MetadataDir = None,
    limit: Limit = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Say what the cluster's metadata say, now or then: leaders, ISR, brokers, settings.

    Of several copies of the metadata the newest one counts. Joined with the ends and high
    watermarks of the logs that are in the log dirs.
    """
    given = paths or []
    if history + bool(acknowledged) + durability > 1:
        raise UsageError("--history, --acknowledged and --durability: pass one of them")
    if (history or acknowledged or durability) and settings:
        raise UsageError("--settings goes with the state at one moment only")
    if acknowledged:
        if topic or at:
            raise UsageError("--acknowledged names its topic, and all times count")
        return _in_sync(given, acknowledged, metadata_dir, output)
    if history:
        return _history(
            HistoryRun(given, metadata_dir=metadata_dir, at=at, topics=topic or ()), limit, output
        )
    from eoctl.commands.shared.metadata_state import StateRun

    run = StateRun(
        given, metadata_dir=metadata_dir, at=at, topics=topic or (), has_all_settings=settings
    )
    if durability:
        return _durability(run, limit, output)
    return _state(run, limit, output)


def _state(run: StateRun, limit: int | None, output: OutputFormat) -> int:
    from eoctl.commands.shared import cluster_rows as rows
    from eoctl.commands.shared.cluster_rows import with_words
    from eoctl.messages import is_for_people, report_answer
    from eoctl.output import Report, message

    partitions = run.partitions
    report_answer(answer(run), output)
    if is_for_people(output):
        limit = TERMINAL_ROWS if limit is None else limit
        # Partitions with problems come first.
        partitions = sorted(partitions, key=lambda each: not each.is_under_min_isr)
    if output is OutputFormat.TEXT:
        partitions = [*with_words(partitions)]
    reports = [
        Report("cluster", rows.ClusterRow._fields, [run.cluster]),
        Report("broker", rows.BROKER_COLUMNS, run.brokers),
        _cut("cluster_partition", rows.PARTITION_COLUMNS, partitions, limit, "partitions"),
        _cut("copy", rows.COPY_COLUMNS, run.copies, limit, "copies"),
        Report("controller", rows.CONTROLLER_COLUMNS, run.controllers),
        _cut("setting", rows.SETTING_COLUMNS, run.settings, limit, "settings"),
        Report("feature", rows.FeatureRow._fields, run.features),
    ]
    if is_for_people(output):
        del reports[0]  # in the answer
    _print([each for each in reports if each.rows], output)
    for note in run.notes:
        message(note)
    return run.status


def _cut(
    kind: str, columns: tuple[str, ...], rows: Sequence[Any], limit: int | None, what: str
) -> Report:
    from eoctl.output import Report

    left = len(rows) - len(rows[:limit])
    notes = [f"{left:,} more {what} are not printed (--limit)"] if left else []
    return Report(kind, columns, rows[:limit], notes=notes)


def _durability(run: StateRun, limit: int | None, output: OutputFormat) -> int:
    """Print which failures each topic survives. Status 1: a topic survives too few of them."""
    from eoctl.messages import is_for_people, report_answer
    from eoctl.output import message
    from recovery.elections.advice import TopicClaims, claims_of

    claims: list[TopicClaims] = list(claims_of(run.image, run.is_wanted))
    report_answer(durability_answer(claims), output)
    if is_for_people(output):
        limit = TERMINAL_ROWS if limit is None else limit
    columns = Columns(TopicClaims._fields, answers=TOPIC_ANSWERS)
    if claims:
        _print([_cut("topic", columns, claims, limit, "topics")], output)
    for note in run.notes:
        message(note)
    return EXIT_FINDINGS if any(each.faults for each in claims) else run.status


def _history(run: HistoryRun, limit: int | None, output: OutputFormat) -> int:
    from eoctl.output import message, while_read
    from eoctl.progress import Progress

    with Progress("reading", run.log_bytes), while_read(lambda: run.status):
        if output is OutputFormat.TEXT:
            _report_history(run, limit)
        else:
            _stream(run, output)
    for note in run.notes:
        message(note)
    return run.status


def _report_history(run: HistoryRun, limit: int | None) -> None:
    from eoctl.messages import is_for_people
    from eoctl.output import Report, emit

    output = OutputFormat.TEXT
    if is_for_people(output):
        limit = TERMINAL_ROWS if limit is None else limit
    if limit is None:
        emit(Report("cluster_change", COLUMNS, _lines(run)), output, is_long=True)
    else:
        rows = newest(run.changes(), run, limit)
        left = run.changes_count - len(rows)
        notes = [f"{left:,} earlier changes are not printed (--limit)"] if left else []
        emit(Report("cluster_change", COLUMNS, rows, notes=notes), output)
    reports = [
        _cut("span", SPAN_COLUMNS, run.spans, limit, "spans under min.insync.replicas"),
        _cut("history_sum", SUM_COLUMNS, run.sums, limit, "partitions"),
    ]
    for each in reports:
        if each.rows:
            _print([each], output, is_first=False)


def _lines(run: HistoryRun) -> Iterator[tuple[Any, ...]]:
    from recovery.cluster.history import PartitionChange

    for change in run.changes():
        if isinstance(change, PartitionChange):
            run.take(change)
        yield line_of(change)


def _stream(run: HistoryRun, output: OutputFormat) -> None:
    """Write each change, each span as it ends, then the open spans and the sums."""
    from eoctl.output import Lines, line, row_writer
    from recovery.cluster.history import PartitionChange

    lines = Lines(line)
    put = row_writer(output, lines.put)
    for change in run.changes():
        put(row_of(change))
        if isinstance(change, PartitionChange):
            ended = run.take(change)
            if ended is not None:
                put({"kind": "span", **span_row(ended)._asdict()})
    for span in run.open_spans:
        put({"kind": "span", **span._asdict()})
    for found in run.sums:
        put({"kind": "history_sum", **found._asdict()})
    lines.flush()


def _in_sync(
    paths: list[str], acknowledged: str, metadata_dir: str | None, output: OutputFormat
) -> int:
    from eoctl.messages import report_answer
    from eoctl.output import Report, message

    run = InSyncRun(paths, acknowledged, metadata_dir=metadata_dir)
    report_answer(run.answer(), output)
    _print([Report("in_sync", IN_SYNC_COLUMNS, run.rows)], output)
    for note in run.notes:
        message(note)
    return run.status


def _print(reports: list[Report], output: OutputFormat, *, is_first: bool = True) -> None:
    from eoctl.messages import is_for_people
    from eoctl.output import emit, line

    begun = is_for_people(output) or not is_first
    for number, each in enumerate(reports):
        if output is OutputFormat.TEXT and (number or begun):
            line("")
        emit(each, output)


# -- the answer of `metadata` before its tables


GRAVE = 1


def answer(run: StateRun) -> Iterator[Said]:
    """Yield the leaders and the problems."""
    row = run.cluster
    when = "" if row.timestamp_ms is None else f", {moment(row.timestamp_ms)}"
    yield Said("State", f"after metadata record {row.end_offset - 1}{when}")
    if not row.is_complete:
        yield Said("Unread", "not all of it could be read. This may be an older state", BAD_RANK)
    if row.maybe_records_count:
        records = counted(row.maybe_records_count, "record")
        yield Said("Agreed", f"up to {row.counted_offset} for sure; {records} above may not count")
    yield from _brokers(run)
    yield from _partitions(run)


def _brokers(run: StateRun) -> Iterator[Said]:
    row = run.cluster
    if row.fenced_count:
        fenced = [str(each.broker) for each in run.brokers if each.state == "fenced"]
        text = f"{row.fenced_count:,} of {row.brokers_count:,} fenced: {listing(fenced, 'brokers')}"
        yield Said("Brokers", text, GRAVE)
    else:
        yield Said("Brokers", f"{row.brokers_count:,}, none fenced")


def _partitions(run: StateRun) -> Iterator[Said]:
    partitions = run.partitions
    names = [f"{each.topic}-{each.partition}" for each in partitions if each.leader == -1]
    text = f"{counted(len(partitions), 'partition')}"
    if not names:
        yield Said("Leaders", f"{text}, all led")
    else:
        yield Said("Leaders", f"none of {listing(names, 'partitions')}, of {text}", BAD_RANK)
    under = [
        f"{each.topic}-{each.partition}"
        for each in partitions
        if each.is_under_min_isr and each.leader != -1
    ]
    if under:
        yield Said("ISR", f"too few for acks=all in {listing(under, 'partitions')}", GRAVE)
    recovering = [f"{each.topic}-{each.partition}" for each in partitions if each.is_recovering]
    if recovering:
        yield Said(
            "Unclean", f"led since an unclean election: {listing(recovering, 'partitions')}", GRAVE
        )


BAD_RANK = 2


# -- the answer of `metadata --durability`: the failures that each topic survives


TOPIC_ANSWERS = (
    "topic", "replicas_count", "survives_for_writes", "survives_for_data", "survives_power",
    "faults",
)  # fmt: skip


def durability_answer(claims: Sequence[TopicClaims]) -> Iterator[Said]:
    """Yield the number of topics that do not survive the loss of one broker, and the way."""
    bad = [each for each in claims if each.faults]
    count = counted(len(claims), "topic")
    if not claims:
        yield Said(
            "Topics", "none is known: the metadata have no topic, or could not be read", GRAVE
        )
        return
    if not bad:
        yield Said("Topics", f"{count}: each survives the loss of any one broker")
        return
    yield Said(
        "Topics",
        f"{len(bad):,} of {count} may not survive the loss of one broker",
        Severity.ERROR.rank,
    )
    lossy = [each.topic for each in bad if not each.survives_for_data]
    if lossy:
        text = f"one lost disk may lose acknowledged records of {listing(lossy, 'topics')}"
        yield Said("Data", text)
    stopped = [each.topic for each in bad if not each.survives_for_writes]
    if stopped:
        yield Said("Writes", f"stop while one broker is down: {listing(stopped, 'topics')}")
    if any(not each.has_elr for each in bad):
        yield Said(
            "Power", "kafka-features.sh upgrade --feature eligible.leader.replicas.version=1"
        )


# -- from `metadata --acknowledged` to rows: the ISR at the time an offset counted


class InSyncRow(NamedTuple):
    """An ISR that may have acknowledged an offset.

    Attributes:
        standing: known, likely, possible or later. "unknown" if the metadata lack the leader epoch.
        start_timestamp_ms, end_timestamp_ms: the time in which it was the ISR.
        acknowledged: yes if a high watermark is above the offset, else unknown.
    """

    topic: str
    partition: int
    offset: int
    standing: str
    leader: int | None
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader_epoch: int
    start_timestamp_ms: int | None
    end_timestamp_ms: int | None
    start_offset: int | None
    end_offset: int | None
    min_insync_replicas: int | None
    acknowledged: str
    record_timestamp_ms: int | None
    is_append_time: bool
    copies: tuple[str, ...]


class InSyncRun:
    """A lookup of an offset, whose rows are complete after construction."""

    def __init__(
        self, paths: Sequence[str], acknowledged: str, *, metadata_dir: str | None
    ) -> None:
        match = re.fullmatch(r"(.+)-([0-9]{1,10}):([0-9]{1,18})", acknowledged)
        if match is None:
            raise UsageError(f"--acknowledged {acknowledged}: not TOPIC-N:OFFSET, as txn-0:311")
        self.topic, self.partition, self.offset = match[1], int(match[2]), int(match[3])
        self._given = given = GivenMetadata(paths, metadata_dir)
        self.notes = list(given.notes)
        self._is_short = given.is_short
        if not given.copies:
            raise UsageError(f"{given.path}: nothing has happened yet. There is no log")
        self._copy, passed_over = newest_copy(given)
        self.notes += passed_over
        self._is_short = self._is_short or bool(passed_over)
        origins = self._origins()
        later = [each.leader_epoch for each in origins[1:]]
        self.rows = [
            row
            for each, epoch in zip(origins, [*later, None], strict=True)
            for row in self._rows(each, epoch)
        ]

    @property
    def status(self) -> int:
        """The exit status: 5 if some metadata could not be read."""
        return EXIT_SKIPPED if self._is_short else EXIT_OK

    def _origins(self) -> list[RecordOrigin]:
        name = f"{self.topic}-{self.partition}"
        copies = []
        for each in self._given.selected:
            if str(each.partition.topic_partition) != name:
                continue
            try:
                copies.append(Partition.of(each))
            except AccessError as exc:
                self.notes.append(str(exc))
                self._is_short = True
        if not copies:
            raise UsageError(
                f"no directory of {name} there: in which leader epoch an offset was appended is in"
                " its log",
                next_step="eoctl metadata LOG-DIR..., of a broker that has it",
            )
        origins = record_origins(copies, self.offset)
        problems = [str(problem) for each in copies for problem in each.problems]
        self.notes += problems
        self._is_short = self._is_short or bool(problems)
        if not origins:
            raise UsageError(
                f"{name} has no offset {self.offset} in {', '.join(each.path for each in copies)}"
            )
        return origins

    def _rows(self, origin: RecordOrigin, before_epoch: int | None) -> Iterator[InSyncRow]:
        copy = self._copy
        history = read_history(copy.partition)
        with Progress("reading"):
            found = in_sync_at(
                history, origin, self.topic, self.partition, before_epoch=before_epoch
            )
        self.notes += [each for each in reading_notes(copy, history) if each not in self.notes]
        self._is_short = self._is_short or not history.is_complete
        if not found:
            self.notes.append(
                f"leader epoch {origin.leader_epoch} is not in the metadata, which begin at "
                f"offset {history.start_offset}. The ISR is unknown"
            )
            yield self._row(origin, None)
        for each in found:
            yield self._row(origin, each)

    def _row(self, origin: RecordOrigin, found: InSync | None) -> InSyncRow:
        state = None if found is None else found.state
        return InSyncRow(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            standing="unknown" if found is None else found.standing.value,
            leader=None if state is None else state.leader,
            isr=() if state is None else state.isr,
            elr=() if state is None else state.elr,
            leader_epoch=origin.leader_epoch if state is None else state.leader_epoch,
            start_timestamp_ms=None if found is None else found.start_timestamp_ms,
            end_timestamp_ms=None if found is None else found.end_timestamp_ms,
            start_offset=None if found is None else found.start_offset,
            end_offset=None if found is None else found.end_offset,
            min_insync_replicas=None if found is None else found.min_insync_replicas,
            acknowledged="yes" if origin.acknowledged_by else "unknown",
            record_timestamp_ms=origin.timestamp_ms,
            is_append_time=origin.is_append_time,
            copies=origin.paths,
        )

    def answer(self) -> Iterator[Said]:
        """Yield what is certain, and what has only bounds."""
        for epoch in dict.fromkeys(each.copies for each in self.rows):
            rows = [each for each in self.rows if each.copies == epoch]
            first = rows[0]
            what = f"{self.topic}-{self.partition} offset {self.offset}"
            yield Said("Record", f"{what}, leader epoch {first.leader_epoch}, in {epoch[0]}")
            if first.record_timestamp_ms is not None:
                whose = "leader" if first.is_append_time else "producer"
                yield Said("", f"{moment(first.record_timestamp_ms)} by the clock of its {whose}")
            acked = "a high watermark is above it" if first.acknowledged == "yes" else "not known"
            yield Said("Acked", acked)
            for each in rows:
                if each.standing in (AckStanding.KNOWN, AckStanding.LIKELY):
                    members = ",".join(map(str, each.isr))
                    yield Said("ISR", f"{members}, led by {each.leader}: {each.standing}")
            if len(rows) > 1:
                yield Said("Bounded", "any of these may have been it: when is written nowhere")


# -- from the options of `metadata --history` to rows: the changes of the cluster, in order


KEPT_SPANS = 1000  # the longest, for text; programs get all of them
COLUMNS = Columns((
    "timestamp_ms", "offset", "what", "leader", "isr", "elr", "leader_epoch", "why",
    "is_under_min_isr", "min_insync_replicas",
), answers=("timestamp_ms", "what", "leader", "isr", "why"))  # fmt: skip


class SpanRow(NamedTuple):
    """A time in which acks=all was refused. Without an end it is still open."""

    topic: str
    partition: int
    start_timestamp_ms: int
    duration_ms: int | None
    start_offset: int
    end_offset: int | None
    end_timestamp_ms: int | None
    min_insync_replicas: int
    least_in_sync_count: int
    was_leaderless: bool
    is_start_known: bool


class SumRow(NamedTuple):
    """The sums of a partition's changes."""

    topic: str
    partition: int
    changes_count: int
    elections_count: int
    unclean_count: int
    leaderless_count: int
    isr_changes_count: int
    spans_count: int
    under_min_isr_ms: int
    longest_under_ms: int
    last_unclean_offset: int | None
    last_unclean_timestamp_ms: int | None


SPAN_COLUMNS = Columns(SpanRow._fields, answers=(
    *PLACE, "start_timestamp_ms", "duration_ms", "least_in_sync_count",
))  # fmt: skip
SUM_COLUMNS = Columns(SumRow._fields, answers=(
    *PLACE, "changes_count", "elections_count", "unclean_count", "spans_count", "under_min_isr_ms",
))  # fmt: skip
IN_SYNC_COLUMNS = Columns(InSyncRow._fields, answers=(
    "standing", "leader", "isr", "leader_epoch", "start_timestamp_ms",
))  # fmt: skip


class HistoryRun:
    """A run that reads the changes in order. Sums and notes are complete at the end."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        metadata_dir: str | None,
        at: str | None,
        topics: Sequence[str],
    ) -> None:
        self.given = given = GivenMetadata(paths, metadata_dir)
        if not given.copies:
            raise UsageError(f"{given.path}: nothing has happened yet. There is no log")
        self._wanted = wanted_topics(topics)
        self._spans = UnderIsrSpans()
        self._longest: list[tuple[int, int, UnderIsrSpan]] = []
        self._ended_count = 0
        self._moment = moment = parse_moment(at, given.end_time_ms())
        self.copy, self._passed_over = newest_copy(given, moment)
        require_reached(self.copy, self.copy.end_offset, moment)
        self.history = read_history(self.copy.partition, until=moment, is_wanted=self._wanted)
        self.changes_count = 0

    @property
    def log_bytes(self) -> int:
        """The number of bytes to read."""
        return sum(each.log.file_bytes for each in self.copy.partition.segments)

    def changes(self) -> Iterator[Change]:
        """Yield the changes, each once."""
        for change in self.history:
            self.changes_count += 1
            yield change

    def take(self, change: PartitionChange) -> UnderIsrSpan | None:
        """Count a change of a partition, and return the span under min ISR that it ends."""
        ended = self._spans.take(change)
        if ended is not None:
            self._ended_count += 1
            entry = (ended.duration_ms or 0, self._ended_count, ended)
            if len(self._longest) < KEPT_SPANS:
                heappush(self._longest, entry)
            else:
                heappushpop(self._longest, entry)
        return ended

    @property
    def spans(self) -> list[SpanRow]:
        """The open spans, then the longest spans."""
        ended = [each for _, _, each in sorted(self._longest, reverse=True)]
        return [span_row(each) for each in [*self._spans.still_open(), *ended]]

    @property
    def open_spans(self) -> list[SpanRow]:
        """The open spans."""
        return [span_row(each) for each in self._spans.still_open()]

    @property
    def sums(self) -> list[SumRow]:
        """The partitions by name."""
        found = sorted(self._spans.sums.values(), key=lambda each: (each.topic, each.partition))
        return [_sum_row(each) for each in found]

    @property
    def notes(self) -> list[str]:
        """Sentences for people, complete after all changes."""
        history = self.history
        voters = voters_of(history.image, self.given.copies)
        known = counted_to(self.given.copies, voters, history.end_offset, read=self.copy)
        reported = [*self.given.notes, *self._passed_over, *reading_notes(self.copy, history)]
        if history.start_offset:
            reported.append(f"what was before offset {history.start_offset} is in no file any more")
        reported += diverged_note(self.copy, known, history.end_offset)
        if known.end_offset < history.end_offset and known.diverged_from is None:
            reported.append(
                f"changes from offset {known.end_offset} on may never have counted. It is unknown "
                f"how far the {len(voters) or 'unknown number of'} voters had agreed"
            )
        reported += moment_notes(history, self._moment)
        if history.end_offset:
            reported.append(
                f"metadata: {self.copy.partition.path}, offsets {history.start_offset} to"
                f" {history.end_offset - 1}"
            )
        return reported

    @property
    def status(self) -> int:
        """The exit status: 5 if some metadata could not be read."""
        is_short = self.given.is_short or self._passed_over or not self.history.is_complete
        return EXIT_SKIPPED if is_short else EXIT_OK


def row_of(change: Change) -> dict[str, Any]:
    """Return a row for programs. Each kind of change has its own columns."""
    time_ms, offset = change.timestamp_ms, change.offset
    if isinstance(change, PartitionChange):
        return _partition_row(change)
    if isinstance(change, BrokerChange):
        return {
            "kind": "broker_change", "timestamp_ms": time_ms, "offset": offset,
            "broker": change.broker_id,
            "why": change.why,
            "is_fenced": None if change.after is None else change.after.is_fenced,
            "broker_epoch": None if change.after is None else change.after.broker_epoch,
        }  # fmt: skip
    if isinstance(change, SettingChange):
        return {
            "kind": "setting_change", "timestamp_ms": time_ms, "offset": offset,
            "resource_type": change.resource_type,
            "resource_name": change.resource_name,
            "setting": change.name,
            "before": shown_value(change.name, change.before),
            "after": shown_value(change.name, change.after),
        }  # fmt: skip
    if isinstance(change, FeatureChange):
        return {
            "kind": "feature_change", "timestamp_ms": time_ms, "offset": offset,
            "feature": change.name, "before": change.before, "after": change.after,
        }  # fmt: skip
    if isinstance(change, QuorumLeaderChange):
        return {
            "kind": "quorum_leader_change", "timestamp_ms": time_ms, "offset": offset,
            "leader": change.leader, "epoch": change.epoch, "voters": change.voters,
        }  # fmt: skip
    return {
        "kind": "unread", "timestamp_ms": time_ms, "offset": offset,
        "end_offset": change.end_offset, "reason": change.reason,
    }  # fmt: skip


def _partition_row(change: PartitionChange) -> dict[str, Any]:
    after = change.after
    return {
        "kind": "partition_change",
        "timestamp_ms": change.timestamp_ms,
        "offset": change.offset,
        "topic": change.topic,
        "partition": change.partition,
        "leader": None if after is None else after.leader,
        "isr": None if after is None else after.isr,
        "elr": None if after is None else after.elr,
        "leader_epoch": None if after is None else after.leader_epoch,
        "partition_epoch": None if after is None else after.partition_epoch,
        "replicas": None if after is None else after.replicas,
        "why": change.why,
        "is_unclean": change.is_unclean,
        "min_insync_replicas": change.min_insync_replicas,
        "is_under_min_isr": change.is_under_min_isr,
    }


def line_of(change: Change) -> tuple[Any, ...]:
    """Return a row of `COLUMNS` for people, with all kinds of changes in one table."""
    time_ms, offset = change.timestamp_ms, change.offset
    if isinstance(change, PartitionChange):
        after, what = change.after, f"{change.topic}-{change.partition}"
        why = ", ".join(change.why)
        if after is None:
            return (time_ms, offset, what, "", "", "", "", why, "", "")
        leader = "none" if after.leader < 0 else after.leader
        return (
            time_ms, offset, what, leader, after.isr, after.elr, after.leader_epoch, why,
            change.is_under_min_isr, change.min_insync_replicas,
        )  # fmt: skip
    what, why = _words(change)
    return (time_ms, offset, what, "", "", "", "", why, "", "")


def _words(change: Change) -> tuple[str, str]:
    if isinstance(change, BrokerChange):
        return f"broker {change.broker_id}", ", ".join(change.why)
    if isinstance(change, SettingChange):
        value = shown_value(change.name, change.after)
        reported = "removed" if value is None else f"= {value}"
        return change.resource_name or "all brokers", f"{change.name} {reported}"
    if isinstance(change, FeatureChange):
        return f"feature {change.name}", f"level {change.after}"
    if isinstance(change, QuorumLeaderChange):
        return f"controller {change.leader}", f"leads the quorum, epoch {change.epoch}"
    assert isinstance(change, Unread)
    end = "" if change.end_offset is None else f" to {change.end_offset - 1}"
    return "unread", f"offsets {change.offset}{end}: {change.reason}"


def newest(changes: Iterator[Change], run: HistoryRun, limit: int) -> list[tuple[Any, ...]]:
    """Count all changes, and return the newest."""
    kept: deque[tuple[Any, ...]] = deque(maxlen=limit)
    for change in changes:
        if isinstance(change, PartitionChange):
            run.take(change)
        kept.append(line_of(change))
    return [*kept]


def span_row(span: UnderIsrSpan) -> SpanRow:
    """Return the row of a span."""
    return SpanRow(
        topic=span.topic,
        partition=span.partition,
        start_timestamp_ms=span.start_timestamp_ms,
        duration_ms=span.duration_ms,
        start_offset=span.start_offset,
        end_offset=span.end_offset,
        end_timestamp_ms=span.end_timestamp_ms,
        min_insync_replicas=span.min_insync_replicas,
        least_in_sync_count=span.least_in_sync_count,
        was_leaderless=span.was_leaderless,
        is_start_known=span.is_start_known,
    )


def _sum_row(found: PartitionSum) -> SumRow:
    return SumRow(
        topic=found.topic,
        partition=found.partition,
        changes_count=found.changes_count,
        elections_count=found.elections_count,
        unclean_count=found.unclean_count,
        leaderless_count=found.leaderless_count,
        isr_changes_count=found.isr_changes_count,
        spans_count=found.spans_count,
        under_min_isr_ms=found.under_ms,
        longest_under_ms=found.longest_ms,
        last_unclean_offset=found.last_unclean_offset,
        last_unclean_timestamp_ms=found.last_unclean_timestamp_ms,
    )
