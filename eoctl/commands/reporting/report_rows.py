"""The rows of a report: partitions are read once, by a check that keeps more data."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from socket import gethostname
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from eoctl import __version__
from eoctl.clock import format_time_ms
from eoctl.commands.reporting import report_options
from eoctl.commands.reporting.cluster_data import (
    Copies,
    StatesSeen,
    brokers_of,
    change_rows,
    commit_rows,
    copies_of,
    duplicate_rows,
)
from eoctl.commands.reporting.partitions import (
    PartitionStory,
    epoch_rows,
    finding_row,
    partition_row,
    producer_rows,
    segment_rows,
    transaction_rows,
    volume_rows,
)
from eoctl.commands.shared.check_run import CheckRequest, CheckRun, prepared
from eoctl.commands.shared.check_verdict import next_command, top, verdict_of_run
from eoctl.commands.txn.readers import TxnContext, TxnOptions
from eoctl.commands.txn.reports import TORN_COLUMNS, torn_rows
from eoctl.output import format_utc
from eoctl.report.layout import ranked_partitions
from eoctl.report.model import HeldMark, Model, SourceMark, TornMark, VerdictMark
from recovery.duplicates.spill import DuplicateKind
from recovery.fsck.partition_state import PartitionInspection, inspect_one
from recovery.fsck.verdict import PlacedFinding
from recovery.replay.snapshots import Clock
from recovery.replicas.compare import Likeness
from recovery.rules.findings import Severity
from recovery.timeline.spans import join_ended
from storage.counts import agreeing, counted
from storage.dirs.partition import Partition
from storage.errors import AccessError, FormatError, RefusedError
from storage.file_names import METADATA_TOPIC, DirState
from storage.places.listing import UNSEQUENCED_TOPICS
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from eoctl.commands.reporting.report_options import ReportRequest
    from eoctl.report.model import (
        ChangeMark,
        CommitMark,
        ComparisonMark,
        DuplicateMark,
        FindingMark,
    )
    from recovery.fsck.one_pass import CheckResult
    from recovery.fsck.verdict import DirectoryVerdict
    from recovery.transactions.open_transactions import OpenTransactionReport
    from storage.dirs.discovery import Selected


DIGEST_DIGITS = 16


# -- transactions whose partitions contradict each other, in the partitions that may have any
#
# `eoctl txn torn` reads all logs again. A page is made in one pass, so only some partitions are
# read again here. They have a producer that is also in another partition. It also has an open
# transaction, or an epoch that one log commits and another log aborts.


# Findings of a check about late batches and markers: of an older epoch, of an older coordinator.
LATE_DATA, OLD_MARKER = "PRD-3", "PRD-5"


def torn_marks(
    context: TxnContext,
    stories: Mapping[str, PartitionStory],
    selected: Mapping[str, Selected],
    request: ReportRequest,
) -> list[TornMark]:
    """Find torn transactions, as `eoctl txn torn` does."""
    live = {path: each for path, each in stories.items() if _is_live(selected[path])}
    producer_ids = _doubtful_producers(live.values())
    wanted = {
        path
        for path, each in live.items()
        if LATE_DATA in _found(each) or producer_ids & _at_work(each)
    }
    # The replica that reaches furthest counts, so all replicas of a partition are read.
    names = {_name(stories[path]) for path in wanted}
    paths = [path for path, each in live.items() if _name(each) in names]
    old = {path for path, each in live.items() if OLD_MARKER in _found(each)}
    notes = list(context.notes)
    rows = torn_rows(context, paths, old_in=old)
    context.notes[:] = notes  # the report has its own notes on reading
    places = {f"{each.inspect.check.row.topic}-{each.inspect.check.row.partition}": path
              for path, each in reversed(live.items())}  # fmt: skip
    command = report_options.torn(request)
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
    row = story.inspect.check.row
    return row.topic, row.partition


def _found(story: PartitionStory) -> set[str]:
    return {each.check_id for each in story.inspect.check.findings}


def _doubtful_producers(stories: Collection[PartitionStory]) -> set[int]:
    """Return producers in several partitions that did more than commit in a partition.

    A marker that ended nothing has no outcome: its epoch cannot be attributed without data. An
    abort is identified by an epoch that no other transaction has. In a damaged log an audit may
    count another epoch, so all such aborts there are doubtful.
    """
    seen: dict[int, set[tuple[str, int]]] = {}
    doubtful: set[int] = set()
    for story in stories:
        for producer_id in _at_work(story):
            seen.setdefault(producer_id, set()).add(_name(story))
        doubtful.update(story.ended.open["producer_id"].tolist())
        if story.inspect.check.row.errors or story.inspect.check.row.unreadable:
            doubtful.update(_raising(story.ended.aborted))
        doubtful |= _below_log_start(story)
    rows = join_ended(*(each.ended.ended for each in stories))
    doubtful.update(rows["producer_id"][(rows["committed"] & rows["aborted"]) > 0].tolist())
    return {each for each in doubtful if len(seen[each]) > 1}


def _at_work(story: PartitionStory) -> set[int]:
    """Return producers with transactions, or with remains of transactions."""
    producers = story.inspect.timeline.producers
    has = producers["transactional_batches"] > 0
    edges = story.inspect.timeline.spans.edges
    return {*edges["producer_id"].tolist(), *producers["producer_id"][has].tolist()}


def _below_log_start(story: PartitionStory) -> set[int]:
    """Return producers with data before the log start, whose end is not in the timelines."""
    start, producers = story.inspect.facts.local_log_start_offset, story.inspect.timeline.producers
    is_below = (producers["transactional_batches"] > 0) & (producers["first_offset"] < (start or 0))
    return {*producers["producer_id"][is_below].tolist()}


def _raising(aborted: object) -> Sequence[int]:
    """Return producers whose aborts raised the epoch. Other aborts may share their epoch."""
    return aborted["producer_id"][aborted["marker"]["epoch"] > aborted["data"]["epoch"]].tolist()  # type: ignore[index,no-any-return]


# -- gather


WIDE = 100_000  # columns of a page, where no sentence is shortened
NEXT = "Next"
RANKS = ("ok", "warning", "error", "error")
TITLE = "eoctl report"
REPORTED_COUNT = 3
MAX_BINS = 50_000  # of an axis, for all partitions together
LEAST_BINS = 24
TORN_WHY = "in which partitions a transaction ended otherwise"
DIVERGED = frozenset(map(str, (Likeness.DIVERGED, Likeness.DISJOINT, Likeness.UNKNOWN)))


class _Around(NamedTuple):
    """Data beyond the partitions, or data that takes another read of them."""

    torn: Sequence[TornMark]
    duplicates: Sequence[DuplicateMark]
    commits: Sequence[CommitMark]
    copies: Copies
    changes: Sequence[ChangeMark]


_NOTHING_AROUND = _Around(torn=(), duplicates=(), commits=(), copies=Copies([], [], []), changes=())


class InspectionRun(CheckRun):
    """A check that keeps the timelines of the logs it reads.

    Attributes:
        inspections: by directory, in the order of the check.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.inspections: dict[str, PartitionInspection] = {}
        self.read = self.reader()

    def reader(self) -> Callable[..., PartitionInspection]:
        """Return the function that reads a partition."""
        return partial(inspect_one, max_bins=self.most_bins())

    def most_bins(self) -> int:
        """Return the limit for each axis of a partition."""
        return max(MAX_BINS // max(len(self.jobs), 1), LEAST_BINS)

    def arrived(self, found: Any) -> CheckResult:
        """Keep the timeline."""
        self.inspections[found.check.row.path] = found
        result: CheckResult = found.check
        return result


Run = TypeVar("Run", bound=InspectionRun)


def gather(request: ReportRequest) -> Model:
    """Read everything, and return it as rows.

    Raises:
        UsageError: nothing matches the options.
        AccessError, NotKafkaError: a path cannot be read at all.
    """
    return ReportGathering(request, InspectionRun).model()


class ReportGathering(Generic[Run]):
    """A gathering of the data of a report, step by step.

    Attributes:
        run: the check of the directories. It can be extended before `model`.
    """

    def __init__(self, request: ReportRequest, kind: type[Run]) -> None:
        """Find the data to read. Raises as `gather`."""
        if not request.is_picture:
            format_utc()
        self._request = request
        self._check_request = CheckRequest(
            request.paths,
            metadata_dir=request.metadata_dir,
            is_deep=request.is_deep,
            topics=request.topics,
            jobs=request.jobs,
            now=request.now,
            expiration_ms=request.expiration_ms,
            server_properties=request.server_properties,
        )
        self.run, _ = prepared(self._check_request, kind)
        self._options = TxnOptions(
            coordinator_dirs=request.coordinator_dirs,
            metadata_dir=request.metadata_dir,
            now=request.now,
            max_timeout_ms=request.max_timeout_ms,
        )
        self._states = StatesSeen()
        # Before the partitions: a transaction that ends in between would look forgotten otherwise.
        self._context = TxnContext(self.run.found, self._options, self._states.add)
        self._selected = {each.partition.path: each for each in self.run.found.selected}
        self._notes: list[str] = []

    def model(self) -> Model:
        """Read, and return the rows."""
        run, request, context = self.run, self._request, self._context
        for _ in run.findings():
            pass
        verdict = verdict_of_run(run, self._check_request)
        clock = Clock.at(context.moment.ms, request.expiration_ms)
        brokers = brokers_of(run.found.selected)
        stories = {
            path: PartitionStory.of(
                each, brokers.get(path), self._opened(path, each), self._names(path, each)
            )
            for path, each in ((row.path, run.inspections[row.path]) for row in run.rows)
        }
        around = _NOTHING_AROUND if request.is_picture else self._around(stories)
        torn, duplicates, commits, copies, changes = around
        every = list(stories.values())
        transactions = [
            row for each in every for row in transaction_rows(each, request, self._options)
        ]
        command = next_command(verdict)
        beside = [*_of_torn(torn), *_of_copies(copies), *_of_elections(changes)]
        diverged = _diverged(copies)
        rows = [*_verdict_rows(verdict)]
        if not command and (diverged or torn):
            command = torn[0].command if torn else diverged[0].command
            why = "where they diverge, and which one should lead"
            text = f"{command}   # {TORN_WHY if torn else why}"
            rows = [each._replace(text=text) if each.label == NEXT else each for each in rows]
        model = Model(
            title=request.title or TITLE,
            version=__version__,
            now_ms=context.moment.ms,
            status=run.status,
            verdict=(*rows, *beside),
            next_command=command,
            partitions=tuple(map(partition_row, every)),
            held=tuple(self._held(verdict, stories)),
            findings=tuple(self._findings(verdict, stories)),
            transactions=tuple(transactions),
            torn=tuple(torn),
            duplicates=tuple(duplicates),
            segments=tuple(row for each in every for row in segment_rows(each, request)),
            epochs=tuple(row for each in every for row in epoch_rows(each, request)),
            volume=(),
            states=tuple(self._states.rows(request)),
            producers=tuple(row for each in every for row in producer_rows(each, request, clock)),
            replicas=tuple(copies.replicas),
            comparisons=tuple(copies.comparisons),
            commits=tuple(commits),
            changes=tuple(changes),
            sources=tuple(self._sources()),
            left_out=tuple(self._left_out(verdict)),
        )
        shown = self._drawn(model, every)
        return model._replace(
            volume=tuple(row for each in shown for row in volume_rows(each, request))
        )

    def _drawn(self, model: Model, stories: list[PartitionStory]) -> list[PartitionStory]:
        """Return the partitions whose volume is drawn."""
        if not self._request.draws_only or len(stories) <= self._request.max_lanes:
            return stories
        ranked = ranked_partitions(model)[: self._request.max_lanes]
        paths = {each.path for each in ranked}
        return [each for each in stories if each.path in paths]

    def _around(self, stories: dict[str, PartitionStory]) -> _Around:
        request, run = self._request, self.run
        duplicates = self._duplicates(stories)
        commits, commit_notes = commit_rows(run.found, request)
        copies = copies_of(run.found, request, self._context.moment)
        changes, change_notes = change_rows(run.found, request)
        self._notes += [*commit_notes, *copies.notes, *change_notes]
        torn = torn_marks(self._context, stories, self._selected, request)
        return _Around(
            torn=torn, duplicates=duplicates, commits=commits, copies=copies, changes=changes
        )

    # --- transactions and their owners

    def _is_live(self, path: str) -> bool:
        name = self._selected[path].partition.name
        return name.state is DirState.LIVE and name.topic != METADATA_TOPIC

    def _opened(self, path: str, inspect: PartitionInspection) -> Sequence[OpenTransactionReport]:
        if not inspect.facts.may_be_open or not self._is_live(path):
            return ()
        try:
            found, _ = self._context.open_of(Partition.of(self._selected[path]))
        except (AccessError, FormatError, AppendError, RefusedError) as exc:
            self._notes.append(f"{path}: open transactions are unknown: {exc}")
            return ()
        return found

    def _names(self, path: str, inspect: PartitionInspection) -> dict[int, str]:
        log = self._context.coordinators(self._selected[path].log_dir)
        if log is None:
            return {}
        found = {}
        for producer_id in inspect.timeline.producers["producer_id"].tolist():
            owner = log.owner_of(producer_id)
            if owner is not None:
                found[producer_id] = owner.transactional_id
        for producer_id in inspect.timeline.spans.edges["producer_id"].tolist():
            owner = log.owner_of(producer_id)
            if owner is not None:
                found[producer_id] = owner.transactional_id
        return found

    def _held(
        self, verdict: DirectoryVerdict, stories: dict[str, PartitionStory]
    ) -> Iterator[HeldMark]:
        """Yield the blocking transactions of a check, with their owners by the coordinators."""
        for each in verdict.held:
            story = stories[each.path]
            opened = [one for one in story.opened if one.first_offset == each.first_offset]
            by = opened[0] if opened else None
            end = each.end_offset
            yield HeldMark(
                topic=each.topic,
                partition=each.partition,
                first_offset=each.first_offset,
                end_offset=end,
                is_end_read=story.inspect.facts.is_end_read,
                held_offsets_count=None if end is None else end - each.first_offset,
                since_timestamp_ms=each.since_ms,
                until_timestamp_ms=story.last_ms(),
                producer_id=None if by is None else by.producer_id,
                transactional_id=None if by is None else by.transactional_id,
                verdict=None if by is None else str(by.verdict),
                is_late=each.is_late,
                open_count=each.open_count,
                path=each.path,
                command=report_options.transactions(each.path, self._request)
                if by is None
                else report_options.transaction(each.path, by.producer_id, self._request),
            )

    # --- findings and duplicates

    def _findings(
        self, verdict: DirectoryVerdict, stories: dict[str, PartitionStory]
    ) -> Iterator[FindingMark]:
        for folded in verdict.listed:
            for finding in (folded.finding, *folded.consequences):
                row = finding_row(
                    PlacedFinding(folded.directory, finding),
                    stories.get(folded.directory),
                    is_consequence=finding is not folded.finding,
                )
                if self._request.is_within(row.timestamp_ms, row.timestamp_ms):
                    yield row

    def _duplicates(self, stories: dict[str, PartitionStory]) -> list[DuplicateMark]:
        """Return proved duplicates, if sequences are irregular, and suspected ones with --deep."""
        kinds = {DuplicateKind.PROVED}
        searched = [
            self._selected[path]
            for path, each in stories.items()
            if self._is_searched(self._selected[path], each)
        ]
        if self._request.is_deep:
            kinds.add(DuplicateKind.SUSPECTED)
            searched = [self._selected[path] for path in stories]
        if not searched:
            return []
        rows, notes = duplicate_rows(searched, kinds, self._request)
        self._notes += [f"duplicates: {each}" for each in notes]
        return rows

    @staticmethod
    def _is_searched(selected: Selected, story: PartitionStory) -> bool:
        producers = story.inspect.timeline.producers
        return selected.partition.name.topic not in UNSEQUENCED_TOPICS and bool(
            producers["irregular"].any()
        )

    # --- sources

    def _sources(self) -> Iterator[SourceMark]:
        request, run = self._request, self.run
        yield SourceMark("eoctl", __version__)
        for each in request.paths:
            yield SourceMark("path", each)
        metas = [each.meta for each in run.found.log_dirs if each.meta is not None]
        clusters = sorted({each.cluster_id for each in metas if each.cluster_id is not None})
        nodes = sorted({each.node_id for each in metas if each.node_id is not None})
        yield from (SourceMark("cluster", each) for each in clusters)
        yield from (SourceMark("node", str(each)) for each in nodes)
        yield SourceMark("host", gethostname())
        yield SourceMark("digest", self._digest())
        for what, value in (
            ("topics", ", ".join(request.topics)),
            ("transactional ids", ", ".join(request.transactional_ids)),
            ("metadata", request.metadata_dir or ""),
            ("coordinators", ", ".join(request.coordinator_dirs)),
        ):
            if value:
                yield SourceMark(what, value)
        yield SourceMark("clock", self._context.moment.describe())
        if run.unreadable_count:
            count = run.unreadable_count
            what = f"{counted(count, 'file')}, or parts of {'them' if count > 1 else 'it'}"
            names = [row.path for row in run.rows if row.unreadable or row.batches is None]
            more = (
                f" and {len(names) - REPORTED_COUNT:,} more" if len(names) > REPORTED_COUNT else ""
            )
            where = f": {', '.join(names[:REPORTED_COUNT])}{more}" if names else ""
            yield SourceMark("not read", f"{what}, could not be read{where}", str(Severity.ERROR))
        reported = dict.fromkeys([*run.notes, *self._context.notes[2:], *self._notes])
        for each in reported:
            yield SourceMark("note", each)

    def _digest(self) -> str:
        """Return the SHA-256 of each partition's batch checksums and log end, for comparison."""
        digest = sha256()
        for row in sorted(self.run.rows, key=lambda each: (each.topic, each.partition, each.path)):
            read = self.run.inspections[row.path].facts.batches_crc
            said = (row.topic, row.partition, row.batches, row.log_bytes, row.end_offset, read)
            digest.update("\t".join(map(str, said)).encode("utf-8", "surrogateescape") + b"\n")
        return digest.hexdigest()[:DIGEST_DIGITS]

    def _left_out(self, verdict: DirectoryVerdict) -> Iterator[str]:
        checked = verdict.checked
        if checked.unlisted_count:
            yield (
                f"{checked.unlisted_count:,} more findings of the same kinds were counted, and are"
                " in no list"
            )
        if self._states.dropped_count:
            yield f"{self._states.dropped_count:,} older records of transactional ids"
        if not self._request.is_deep:
            yield "suspected duplicates were not looked for. That takes --deep"


def _of_torn(torn: Sequence[TornMark]) -> Iterator[VerdictMark]:
    """Yield transactions with two outcomes, which a check of a single partition cannot see."""
    for each in torn[:REPORTED_COUNT]:
        whose = each.transactional_id or f"producer {each.producer_id}"
        reported = [
            f"{what} {', '.join(names[:REPORTED_COUNT])}"
            for what, names in (
                ("committed in", each.committed_in),
                ("aborted in", each.aborted_in),
                ("open in", each.open_in),
                ("without marker in", each.without_marker),
            )
            if names
        ]
        place = f"{each.topic}-{each.partition}" if each.offset is not None and not reported else ""
        text = f"{each.why}: {whose}: {', '.join(reported) or ' '.join((place, each.detail or ''))}"
        yield VerdictMark("Torn", str(Severity.WARNING), text)
    if len(torn) > REPORTED_COUNT:
        count = len(torn) - REPORTED_COUNT
        text = f"{count:,} more transaction{'s are' if count > 1 else ' is'} torn"
        yield VerdictMark("Torn", str(Severity.WARNING), text)


def _of_copies(copies: Copies) -> Iterator[VerdictMark]:
    """Yield diverging replicas, which a check of a single directory cannot see."""
    brokers = {each.path: each.broker for each in copies.replicas}
    diverged = _diverged(copies)
    for each in diverged[:REPORTED_COUNT]:
        names = [brokers.get(path) for path in (each.path, each.other_path)]
        whose = " and ".join("a copy" if one is None else f"broker {one}" for one in names)
        what = f"diverge at offset {each.divergence_offset}"
        if each.likeness == Likeness.DISJOINT:
            what = "have no offset in common"
        if each.likeness == Likeness.UNKNOWN:
            what = "could not be compared whole"
        text = f"{each.topic}-{each.partition}: {whose} {what}"
        yield VerdictMark("Copies", str(Severity.WARNING), text)
    if len(diverged) > REPORTED_COUNT:
        count = len(diverged) - REPORTED_COUNT
        text = (
            f"{counted(count, 'more pair of copies', 'more pairs of copies')}"
            f" {agreeing(count, 'diverges', 'diverge')}"
        )
        yield VerdictMark("Copies", str(Severity.WARNING), text)


def _diverged(copies: Copies) -> list[ComparisonMark]:
    """Return pairs of replicas that differ, first contradictions, then users' topics."""
    found = [each for each in copies.comparisons if each.likeness in DIVERGED]
    has_diverged = str(Likeness.DIVERGED)
    return sorted(
        found, key=lambda each: (each.likeness != has_diverged, each.topic.startswith("__"))
    )


def _of_elections(changes: Sequence[ChangeMark]) -> Iterator[VerdictMark]:
    """Yield unclean elections, after which another replica may have had more records."""
    every = [each for each in changes if each.is_unclean]
    alone = [each for each in every if each.replicas is not None and "," not in each.replicas]
    unclean = [each for each in every if each not in alone]
    for each in unclean[-REPORTED_COUNT:]:
        text = (
            f"{each.topic}-{each.partition}: broker {each.leader} leads{_when('since', each)} by an"
            f" election that was not clean ({each.text}). It may lack what others had"
        )
        yield VerdictMark("Election", str(Severity.WARNING), text)
    if len(unclean) > REPORTED_COUNT:
        count = len(unclean) - REPORTED_COUNT
        text = f"{count:,} earlier one{'s were' if count > 1 else ' was'} unclean, too"
        yield VerdictMark("Election", str(Severity.WARNING), text)
    if alone:
        names = {(each.topic, each.partition) for each in alone}
        text = (
            f"{counted(len(names), 'partition')} without another replica came back"
            f" after a stop that was not clean, the last{_when('at', alone[-1])}. No copy has more"
        )
        yield VerdictMark("Election", RANKS[0], text)


def _when(word: str, change: ChangeMark) -> str:
    return "" if change.timestamp_ms is None else f" {word} {format_time_ms(change.timestamp_ms)}"


def _verdict_rows(verdict: DirectoryVerdict) -> Iterator[VerdictMark]:
    """Yield the first lines of a check, without the next command."""
    for said in top(verdict, WIDE):
        rank = 0 if said.label in {NEXT, "Checked"} else said.rank
        if said.label == "Checked" and verdict.checked.unread_count:
            rank = Severity.ERROR.rank
        text = said.text
        if said.label == NEXT:
            obstacles = (each for start in verdict.starts for each in start.obstacles)
            path = next((each.path for each in obstacles if each.fix == text), "")
            text = f"{path}: {text}" if path else text
        yield VerdictMark(said.label, RANKS[rank], text)
