"""`eoctl diff`: the differences between two copies, or the changes of an applied plan."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import eoctl.arrow_files  # noqa: F401 - for URIs
from eoctl.commands.shared.metadata_state import RESOURCES, shown_value
from eoctl.messages import (
    Said,
    draw_below_answer,
    first_of_each_kind,
    left_out_by_limit,
    listing,
    report_answer,
)
from eoctl.options import TERMINAL_KEY, TERMINAL_ROWS, Limit, Output, Topics
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import argument, option
from eoctl.progress import Progress
from recovery.changes.journals.journal import has_journal, read_journal
from recovery.changes.journals.losses import losses_of, note_of_changes
from recovery.cluster.clusters import Clusters
from recovery.groups.group_log import GroupLog
from recovery.loss.comparison import AgainstSurvey, key_of, side_before, touched_of
from recovery.loss.rows import ChangeKind, ChangeRow, ChangeSummary
from recovery.loss.sides import Side, side_of, total_bytes
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.discovery import discover
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, AccessError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC, METADATA_TOPIC, is_below
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from recovery.changes.journals.losses import JournalLoss
    from recovery.loss.sides import PartitionSide
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


COPY_BYTES = 1 << 20


def command(
    a: Annotated[
        str,
        argument(
            metavar="A", help="A log dir, a partition or a journal. Several log dirs: DIR,DIR."
        ),
    ],
    b: Annotated[
        str | None, argument(metavar="[B]", help="The same. Without B, A is a journal.")
    ] = None,
    topic: Topics = None,
    no_records: Annotated[
        bool, option("--no-records", help="Compare topics, settings and groups only.")
    ] = False,
    limit: Limit = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Compare two copies: records, topics, settings, and offsets of consumer groups.

    If A is a journal, eoctl compares the state before its change with B, or with the state now.
    Records are compared by partition, offset and key, from the higher log start offset on. Of
    several replicas on one side, eoctl takes the replica that `replicas compare` recommends.
    """
    from eoctl.output import draws_tables, while_read

    is_drawn = output is OutputFormat.TEXT and draws_tables()
    if limit is None and is_drawn:
        limit = TERMINAL_ROWS
    run = DiffRun(a, b, limit=limit, topics=topic or (), has_records=not no_records)
    with while_read(lambda: run.status, is_verdict=True):
        if is_drawn:
            _draw(run)
        else:
            _stream(run, output)
    return run.status


def _draw(run: DiffRun) -> None:
    """Print the answer, then the rows: on a terminal and in files of columns."""
    from eoctl.output import Report

    order = [*ChangeKind]
    rows = sorted(run.rows(), key=lambda each: order.index(each.kind))
    report_answer(run.answer(), OutputFormat.TEXT)
    reports = [
        Report("state", STATE_COLUMNS, run.shown_states),
        Report("change", CHANGE_COLUMNS, [_as_text(each, TERMINAL_KEY) for each in rows]),
        Report("partition", SUMMARY_COLUMNS, run.concerned),
    ]
    draw_below_answer(reports, run.notes)


def _as_text(change: ChangeRow, most: int | None = None) -> tuple[Any, ...]:
    """Return a row of text, with null for the key of a record without a key."""
    from eoctl.console.columns import row_as_text

    return row_as_text(change._replace(key=b"null") if change.key is None else change, most)


def _stream(run: DiffRun, output: OutputFormat) -> None:
    """Print rows as they are found, then the sums of each partition."""
    from eoctl.output import Report, emit, line

    is_text = output is OutputFormat.TEXT
    emit(Report("state", STATE_COLUMNS, run.shown_states), output)
    if is_text:
        line("")
    rows = run.rows()
    emit(Report("change", CHANGE_COLUMNS, map(_as_text, rows) if is_text else rows), output)
    if is_text:
        line("")
    emit(Report("partition", SUMMARY_COLUMNS, run.summaries, notes=run.notes), output)
    report_answer(run.answer(), output)


# -- a run of `eoctl diff`: the two sides, the differences, and the exit status


ALL_COMPARED = "verified: checksums and contents of all batches that were compared"
NO_METADATA_RECORDS = f"records of {METADATA_TOPIC} are not compared. Topics and configs are"
REPLICAS_CHOSEN = "of several replicas, eoctl compares the replica that replicas compare recommends"
NO_RECORDS = "records are not compared (--no-records)"


class StateChange(NamedTuple):
    """A difference outside the records.

    Attributes:
        change: "gone" if only A has it, "new" if only B has it, or "changed".
        what: topic, setting, or committed offset.
        name: the topic, the resource of the setting, or the group.
        field: the property of a topic, the setting, or the partition.
        a, b: the values, None on a side without a value.
    """

    change: ChangeKind
    what: str
    name: str
    field: str
    a: str | None
    b: str | None


STATE_COLUMNS = Columns(StateChange._fields, answers=StateChange._fields)
CHANGE_COLUMNS = Columns(
    ChangeRow._fields, answers=("kind", *PLACE, "offset", "key", "differences")
)
SUMMARY_COLUMNS = Columns(ChangeSummary._fields, answers=(
    *PLACE, "gone", "changed", "new", "equal", "is_whole",
))  # fmt: skip
WHATS = {"topic": "Topics", "setting": "Configs", "committed offset": "Groups"}


class DiffRun:
    """One comparison and its results.

    Attributes:
        states: differences outside the records.
        notes: sentences for the end, complete after the last row.
    """

    def __init__(
        self,
        a: str,
        b: str | None,
        *,
        limit: int | None,
        topics: Collection[str] = (),
        has_records: bool = True,
    ) -> None:
        """List both sides. With topics, list only their partitions.

        Raises:
            UsageError: there is nothing to compare.
            AccessError, FormatError, RefusedError: a side cannot be read.
        """
        self._limit = limit
        self._by_journal: list[JournalLoss] = []
        self._compared: set[str] = set()
        self._unread: set[str] = set()  # kinds of states that were compared in part
        self._topics = tuple(topics)
        self._is_short = False
        self.counts = dict.fromkeys(ChangeKind, 0)
        self.states: list[StateChange] = []
        self.notes: list[str] = [ALL_COMPARED if has_records else NO_RECORDS]
        if not a or b == "":
            raise UsageError("A and B are directories; an empty name is none")
        paths = [] if b is None else split_paths(b)
        if has_journal(a):
            side, other = self._around_journal(a, paths, topics)
            self.names = f"before {a} was applied", b or "now"
            self._compare_groups_before(a, paths, topics)
        else:
            if b is None:
                raise UsageError(f"{a}: B is missing", next_step="eoctl diff A B")
            given = split_paths(a)
            other, side = (side_of(each, self._recommended, topics) for each in (given, paths))
            other, side = _in_common(other, side, paths), _in_common(side, other, given)
            _require_two(side, other)
            if METADATA_TOPIC not in topics and all(discover(e).whole for e in (given, paths)):
                other, side = _without_metadata(other), _without_metadata(side)
                self.notes.append(NO_METADATA_RECORDS)
            self.names = a, b
            self._compare_clusters(given, paths, topics)
        if not other.partitions and not side.partitions:
            raise UsageError(f"{a}: no partition to compare with")
        if not has_records and not self._compared:
            raise UsageError(
                "--no-records: without the records there is nothing to compare here",
                next_step="whole log dirs of both sides; or without --no-records",
            )
        self._progress = Progress("comparing", lambda: total_bytes([side, other]))
        self._survey = AgainstSurvey(side, other, on_bytes=self._progress.advance)
        self._has_records = has_records
        keys = self._survey.keys
        self._by_journal = [each for each in self._by_journal if key_of(each.directory) in keys]
        self.notes += (f"{each.directory}: {each.reported}" for each in self._by_journal)

    def _around_journal(
        self, journal: str, paths: Sequence[str], topics: Collection[str]
    ) -> tuple[Side, Side]:
        """Return the changed files as they are now, or as in `paths`, and as they were before."""
        for log_dir in read_journal(journal).log_dirs:
            self._by_journal += losses_of(journal, os.path.realpath(log_dir))
        other = side_before(journal)
        given = list(paths) or touched_of(journal)
        if not given:
            gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            first = next(iter(other.partitions.values()))
            raise AccessError(gone, first.path, next_step=f"eoctl diff {pasted(journal)} B")
        side = side_of(given, self._recommended, topics)
        # A partition outside of the change is equal. A removed partition is in the backup only.
        theirs = {
            key: own for key, own in other.partitions.items() if not topics or key[0] in topics
        }
        mine = {key: own for key, own in side.partitions.items() if key in theirs}
        if paths:
            above = [os.path.abspath(each) for each in paths]  # noqa: PTH100 - links stay
            theirs = {
                key: own
                for key, own in theirs.items()
                if key in mine or any(is_below(own.path, each) for each in above)
            }
        return side._replace(partitions=mine), other._replace(partitions=theirs)

    def _recommended(self, directories: Sequence[str]) -> str:
        """Return the replica that `replicas compare` recommends."""
        from eoctl.commands.shared.replica_rows import CompareRun

        run = CompareRun(directories, now=None, expiration_ms=None)
        (row,) = run.recommendations
        if REPLICAS_CHOSEN not in self.notes:
            self.notes.append(REPLICAS_CHOSEN)
        return row.leader

    # --- outside the records

    def _compare_clusters(
        self, a: Sequence[str], b: Sequence[str], topics: Collection[str]
    ) -> None:
        """Compare topics, settings and groups, if both sides are log dirs."""
        dirs = [discover(each).whole for each in (a, b)]
        if not all(dirs):
            return
        images = [self._image(each) for each in dirs]
        known = [each for each in images if each is not None and each.is_complete]
        if len(known) < len(images):
            short = [path for each, found in zip(images, (a, b), strict=True)
                     if each is None or not each.is_complete for path in found]  # fmt: skip
            what = f"{', '.join(short)}: no metadata, or not all of them could be read"
            self.notes.append(f"topics and settings are not compared: {what}")
            self._is_short |= any(each is not None for each in images)
        else:
            is_one_cluster = _cluster_id(dirs[0]) == _cluster_id(dirs[1])
            names = [
                name
                for name in sorted({*known[0].topics, *known[1].topics})
                if not topics or name in topics
            ]
            self._add("topic", *(_topics(each, names, has_ids=is_one_cluster) for each in known))
            self._add("setting", *(_settings(each, topics) for each in known))
        logs = [GroupLog(*each) for each in zip(dirs, images, strict=True)]
        self._compare_groups(logs[0], logs[1], topics)

    def _image(self, log_dirs: Sequence[LogDir]) -> ClusterImage | None:
        clusters = Clusters(log_dirs)
        image = clusters.image_for(log_dirs[0])
        self.notes += clusters.unread
        self._is_short |= bool(clusters.unread) or (image is not None and not image.is_complete)
        return image

    def _compare_groups(
        self,
        one: GroupLog,
        two: GroupLog,
        topics: Collection[str],
        only: Collection[int] | None = None,
    ) -> None:
        """Compare committed offsets.

        `only`: the partitions of __consumer_offsets to compare, None for all.
        """
        damaged = set[int]()
        for each in (one, two):
            self.notes += each.reported()
            self.notes += map(str, each.problems)
            self._is_short |= each.is_corrupt or each.is_unreadable
            damaged |= {number for number, is_whole in each.partitions.items() if not is_whole}
        if damaged:  # an unreadable offset would be replaced by an older offset
            names = ", ".join(f"{GROUPS_TOPIC}-{each}" for each in sorted(damaged))
            self.notes.append(f"groups in {names} are not compared. A side is damaged there")
            self._unread.add("committed offset")
        numbers = {*one.partitions, *two.partitions} if only is None else {*only}
        only = numbers - damaged
        self._add("committed offset", *(_offsets(each, topics, only) for each in (one, two)))

    def _compare_groups_before(
        self, journal: str, paths: Sequence[str], topics: Collection[str]
    ) -> None:
        """Compare the committed offsets before a change of __consumer_offsets with B, or now."""
        before = side_before(journal).partitions
        parts = {key: own for key, own in before.items() if key[0] == GROUPS_TOPIC}
        if not parts:
            return
        touched = [own.path for own in parts.values() if Path(own.path).is_dir()]
        current = paths or touched
        dirs = discover(current).log_dirs if current else ()
        image = self._image(dirs) if dirs else None
        with TemporaryDirectory(prefix="eoctl-diff-") as place:
            for key, own in parts.items():
                _write_out(own, Path(place, f"{key[0]}-{key[1]}"))
            one = GroupLog(discover([place]).log_dirs, image)
            self._compare_groups(one, GroupLog(dirs, image), topics, {key[1] for key in parts})

    def _add(
        self,
        what: str,
        a: Mapping[tuple[str, str], str],
        b: Mapping[tuple[str, str], str],
    ) -> None:
        self._compared.add(what)
        for key in sorted({*a, *b}):
            one, two = a.get(key), b.get(key)
            if one == two:
                continue
            kind = ChangeKind.CHANGED
            if one is None or two is None:
                kind = ChangeKind.NEW if one is None else ChangeKind.GONE
            if what == "setting":
                one, two = (shown_value(key[1], each) for each in (one, two))
            name, field = key
            self.states.append(
                StateChange(change=kind, what=what, name=name, field=field, a=one, b=two)
            )

    # --- rows

    @property
    def shown_states(self) -> list[StateChange]:
        """The differences outside the records, at most --limit of them."""
        shown = self.states[: self._limit]
        if left := len(self.states) - len(shown):
            note = f"{left} more differences outside the records are not printed (--limit)"
            if note not in self.notes:
                self.notes.append(note)
        return shown

    def rows(self) -> Iterator[ChangeRow]:
        """Yield the records that differ, at most --limit of each kind, and count all of them."""
        if not self._has_records:
            return
        with self._progress:
            yield from first_of_each_kind(self._survey.rows(), self.counts, self._limit)
        self.notes += dict.fromkeys(self._survey.notes)
        self.notes += left_out_by_limit(self.counts, self._limit)

    @property
    def summaries(self) -> list[ChangeSummary]:
        """A row per partition, with partitions that differ first."""
        return sorted(
            self._survey.summaries,
            key=lambda each: (not each.gone, not each.changed, not each.new, each.topic,
                              each.partition),
        )  # fmt: skip

    @property
    def concerned(self) -> list[ChangeSummary]:
        """The partitions that differ, or that are not fully readable."""
        return [
            each
            for each in self.summaries
            if each.gone or each.new or each.changed or not each.is_whole
        ]

    def answer(self) -> Iterator[Said]:
        """Say how many records, topics, settings and offsets differ."""
        if self._has_records:
            found = self._survey.summaries
            gone, new, changed, equal = (
                sum(getattr(each, name) for each in found)
                for name in ("gone", "new", "changed", "equal")
            )
            more = "; a part could not be read" if self._survey.is_short else ""
            text = f"{gone:,} only in A, {new:,} only in B, {changed:,} changed, {equal:,} equal"
            rank = Severity.WARNING.rank if gone or changed else 0
            yield Said("Records", f"{text}{more}", rank)
        for what, label in WHATS.items():
            if what not in self._compared:
                continue
            rows = [each for each in self.states if each.what == what]
            limits = f" in what concerns {', '.join(self._topics)}" if self._topics else ""
            limits += "; a part could not be read" if what in self._unread else ""
            if not rows:
                yield Said(label, f"equal{limits}")
                continue
            names = listing(list(dict.fromkeys(each.name for each in rows)), "names")
            yield Said(label, f"{counted(len(rows), 'difference')} in {names}{limits}")
        for each in note_of_changes(self._by_journal):
            yield Said("Lost", each, Severity.ERROR.rank)
        for label, name in zip("AB", self.names, strict=True):
            yield Said(label, name)

    @property
    def status(self) -> int:
        """The exit status so far: 1 if anything differs."""
        found = self._survey.summaries
        is_new = any(each.new for each in found)
        if self.states or is_new or self._survey.is_changed or any(self.counts.values()):
            return EXIT_FINDINGS
        if self._by_journal:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self._survey.is_short or self._is_short else EXIT_OK


def split_paths(text: str) -> list[str]:
    """Return the directories of a side, which commas separate as in log.dirs."""
    return [text] if Path(text).exists() else [each for each in text.split(",") if each]


def _cluster_id(log_dirs: Sequence[LogDir]) -> str | None:
    known = {each.meta.cluster_id for each in log_dirs if each.meta is not None}
    return next(iter(known)) if len(known) == 1 else None


def _topics(
    image: ClusterImage, names: Sequence[str], *, has_ids: bool
) -> dict[tuple[str, str], str]:
    """Return the topics of a cluster. A topic id detects a topic that was created again."""
    found = {}
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            continue
        factors = {len(each.replicas) for each in topic.partitions.values()}
        found[name, "partitions"] = str(len(topic.partitions))
        found[name, "replication factor"] = ", ".join(map(str, sorted(factors)))
        if has_ids:
            found[name, "topic id"] = format_uuid(topic.topic_id)
    return found


def _settings(image: ClusterImage, topics: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the dynamic settings and the feature levels. With topics, only theirs."""
    found: dict[tuple[str, str], str] = {}
    for (kind, resource), settings in image.configs.items():
        if topics and not (kind == TOPIC_RESOURCE and resource in topics):
            continue
        name = f"{RESOURCES.get(kind, str(kind))} {resource or 'all'}"
        found.update(((name, key), value) for key, value in settings.items())
    if not topics:
        found.update((("cluster", key), str(level)) for key, level in image.features.items())
    return found


def _offsets(
    log: GroupLog, topics: Collection[str], only: Collection[int] | None
) -> dict[tuple[str, str], str]:
    """Return the committed offsets that count, by group and partition."""
    return {
        (group, str(each.place)): str(each.value.offset)
        for group, commits in log.all_commits().items()
        for each in commits
        if each.pending_producer_id is None
        and (only is None or each.partition in only)
        and (not topics or each.key.topic in topics)
    }


def _write_out(side: PartitionSide, directory: Path) -> None:
    """Write the segments of a partition in their earlier state, for other readers."""
    directory.mkdir()
    for place in side.places:
        with side.opener(place) as segment, (directory / Path(place.path).name).open("wb") as file:
            for pos in range(0, place.file_bytes, COPY_BYTES):
                count = min(COPY_BYTES, place.file_bytes - pos)
                file.write(segment.file.read_at(pos, count).data)


def _in_common(side: Side, other: Side, paths: Sequence[str]) -> Side:
    """Leave out partitions that the other side lacks, if `paths` name partition directories."""
    given = {os.path.realpath(each) for each in paths}
    asked = {os.path.realpath(own.path) for own in other.partitions.values()}
    if not given <= asked:
        return side
    found = {key: own for key, own in side.partitions.items() if key in other.partitions}
    return side._replace(partitions=found)


def _without_metadata(side: Side) -> Side:
    """Leave out the metadata log, whose records differ between all nodes and at all times."""
    kept = {key: own for key, own in side.partitions.items() if key[0] != METADATA_TOPIC}
    return side._replace(partitions=kept)


def _require_two(side: Side, other: Side) -> None:
    """Refuse to compare a directory with itself, which is always equal. Raises UsageError."""
    for key, own in side.partitions.items():
        theirs = other.partitions.get(key)
        if theirs is not None and os.path.realpath(own.path) == os.path.realpath(theirs.path):
            raise UsageError(f"{own.path} and {theirs.path}: the same directory")
