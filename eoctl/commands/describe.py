"""`eoctl describe`: summarise partitions or whole log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from eoctl.console.columns import size_text
from eoctl.messages import (
    Said,
    folded,
    is_for_people,
    listing,
    notes_in_use,
    report_answer,
    report_first,
)
from eoctl.options import Output, Paths, ServerProperties, Topics, given_paths, process_count
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option, output_option, records_option
from recovery.rules.findings import Severity
from storage.counts import agreeing, counted
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    FormatError,
    UsageError,
    call_text,
)
from storage.file_names import METADATA_TOPIC
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.inspect.describe import Description, PartitionDescription
    from storage.dirs.discovery import Discovery, Selected

VERIFIED = "verified: headers and checksums of all batches; records were not decompressed"
PARTITION_ANSWERS = (
    *PLACE, "verdict", "log_start_offset", "log_end_offset", "high_watermark",
    "last_stable_offset", "open_transactions_count", "log_bytes",
)  # fmt: skip
SEGMENT_ANSWERS = (
    "base_offset", "last_offset", "verdict", "records_count", "log_bytes", "max_timestamp_ms",
)  # fmt: skip
REMOTE_ANSWERS = ("start_offset", "end_offset", "state", "log_bytes", "max_timestamp_ms")


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    metadata_dir: Annotated[
        str | None,
        advanced_option(
            metavar="DIR", help="Log dir with __cluster_metadata-0, or that directory."
        ),
    ] = None,
    segments: Annotated[
        bool, output_option("--segments", help="A row per segment too, for all partitions.")
    ] = False,
    picture: Annotated[
        bool,
        output_option("--picture", help="Draw partitions as bars of offsets, with what is wrong."),
    ] = False,
    max_lanes: Annotated[
        int | None,
        records_option(min=1, metavar="N", help="Draw at most N bars.", show_default="40"),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Summarise partitions: offsets, sizes, codecs, producers, open transactions.

    Every batch is read and its checksum verified. A single partition is shown segment by segment
    too. Unknown is printed as unknown (null in jsonl), never as 0.
    """
    if picture or max_lanes is not None:
        if segments:
            raise UsageError("--picture has the borders of segments. Leave out --segments")
        wanted = given_paths(paths, server_properties)
        return _picture(
            wanted, tuple(topic or ()), metadata_dir, server_properties,
            output, max_lanes, is_picture=picture,
        )  # fmt: skip
    from eoctl.commands.shared.cluster_rows import with_words
    from eoctl.output import Report, emit, line, while_read
    from recovery.cluster.clusters import Clusters, find_metadata
    from recovery.cluster.remote_segments import RemoteSegment
    from recovery.inspect.describe import PartitionDescription, SegmentSummary
    from storage.dirs.discovery import discover

    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl describe PATH...")
    found = discover(wanted)
    metadata = None if metadata_dir is None else find_metadata(metadata_dir)
    run = _DescribeRun(found, Clusters(found.log_dirs, metadata))
    is_single = len(found.selected) == 1
    seen = _Seen(run)
    rows: Iterator[Any] = iter(seen)
    with while_read(lambda: run.status):
        if is_single:
            (only,) = rows
            report_first(folded(_sentences(only), output), output)
            rows = iter([only])
        elif is_for_people(output):
            rows = iter([*rows])
            report_first(seen.lines(wanted), output)
        if output is OutputFormat.TEXT:
            rows = with_words(rows)
        columns = Columns(PartitionDescription._fields, answers=PARTITION_ANSWERS)
        emit(Report("partition", columns, rows, notes=run.notes), output)
    if not (is_single or is_for_people(output)):
        report_answer(seen.lines(wanted), output)
    if segments or is_single:
        if output is OutputFormat.TEXT:
            line("")
        columns = Columns(SegmentSummary._fields, answers=SEGMENT_ANSWERS)
        emit(Report("segment", columns, run.segments), output)
        if run.remote_segments:
            if output is OutputFormat.TEXT:
                line("")
            columns = Columns(RemoteSegment._fields, answers=REMOTE_ANSWERS)
            emit(Report("remote_segment", columns, run.remote_segments), output)
    return run.status


class _Seen:
    """Summaries of partitions, and the answer from them."""

    def __init__(self, run: _DescribeRun) -> None:
        self._run = run
        self._count = self._log_bytes = self._open_count = 0
        self._names: dict[str, list[str]] = {}  # partitions that are not ok, by verdict

    def __iter__(self) -> Iterator[PartitionDescription]:
        for each in self._run.descriptions():
            found = each.summary
            unread = each.is_bad or each.is_unreadable or found.log_end_offset is None
            self._count += 1
            self._log_bytes += found.log_bytes or 0
            self._open_count += found.open_transactions_count or 0
            if found.verdict is VerdictKind.OK and unread:
                self._names.setdefault("not read whole", []).append(_name(found))
            elif found.verdict is not VerdictKind.OK:
                self._names.setdefault(found.verdict or "unreadable", []).append(_name(found))
            yield found

    def lines(self, paths: Sequence[str]) -> Iterator[Said]:
        """Yield the number of partitions, damage, open transactions, and the next command."""
        what = f"{counted(self._count, 'partition')}, {size_text(self._log_bytes)}"
        is_ok = not (self._names or self._run.status)
        yield Said("Found", f"{what}, all ok" if is_ok else what)
        for verdict, names in self._names.items():
            is_note = verdict in (VerdictKind.SUSPICIOUS, VerdictKind.PREALLOCATED)
            label, grave = ("Note", Severity.NOTE) if is_note else ("Damage", Severity.ERROR)
            words = f"{verdict.replace('_', ' ')}: {listing(names, 'partitions')}"
            yield Said(label, words, grave.rank)
        if absent := self._run.absent_count:
            words = f"{counted(absent, 'partition')} of the metadata, not in these directories"
            yield Said("Absent", words, Severity.ERROR.rank)
        if unread := self._run.problems_count:
            yield Said("Unread", f"{counted(unread, 'place')}, see below", Severity.ERROR.rank)
        if self._open_count:
            yield Said("Open", counted(self._open_count, "transaction"))
        if not is_ok:
            yield Said("Next", call_text(["eoctl", "check", *paths]))


def _name(found: PartitionDescription) -> str:
    return found.topic if found.partition is None else f"{found.topic}-{found.partition}"


def _sentences(found: PartitionDescription) -> Iterator[str]:
    """Yield the content of a partition, and the range that a consumer receives."""
    name = _name(found)
    if found.log_end_offset is None and not found.segments_count:
        yield f"{name}: no segment yet"
        return
    if found.log_end_offset is None:
        yield f"{name}: the log end is unknown, because the last .log could not be read to its end"
        return
    start = found.log_start_offset or 0
    words = f"{name}: offsets {start} to {found.log_end_offset - 1}"
    if found.log_end_offset <= start:
        words = f"{name}: no record, the log begins and ends at offset {start}"
    elif found.records_count is not None:
        words = f"{words}, {counted(found.records_count, 'record')}"
    words = f"{words}, {size_text(found.log_bytes or 0)}, {found.verdict or 'unreadable'}"
    yield words
    opened, stable = found.open_transactions_count, found.last_stable_offset
    if opened and stable is not None and stable < found.log_end_offset:
        opens = counted(opened, "open transaction")
        yield f"read_committed stops at {stable} until {opens} {agreeing(opened, 'ends', 'end')}"


def _picture(
    wanted: list[str],
    topics: tuple[str, ...],
    metadata_dir: str | None,
    server_properties: str | None,
    output: OutputFormat,
    max_lanes: int | None,
    *,
    is_picture: bool,
) -> int:
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl describe PATH... --picture")
    from eoctl.commands.reporting.audit_report import show_offsets
    from eoctl.commands.reporting.report_options import ReportRequest

    request = ReportRequest(
        wanted,
        metadata_dir=metadata_dir,
        topics=topics,
        jobs=process_count(None),
        server_properties=server_properties,
    )
    return show_offsets(request, output, max_lanes, is_picture=is_picture)


class _DescribeRun:
    """A run over partitions, one after the other, with the notes for the end."""

    def __init__(self, found: Discovery, clusters: Any) -> None:
        from eoctl.commands.shared.cluster_rows import ClusterNotes
        from recovery.cluster.placement import lost_partitions

        self._in_cluster = ClusterNotes()
        self._found = found
        self._clusters = clusters
        self.segments: list[Any] = []
        self.remote_segments: list[Any] = []
        self.notes: list[str] = [VERIFIED]
        self.is_bad = any(isinstance(each, FormatError) for each in found.problems)
        self.is_unreadable = any(isinstance(each, AccessError) for each in found.problems)
        self.notes += map(str, found.problems)
        absent = lost_partitions(found.whole, clusters)
        self.notes += map(str, absent)
        self.absent_count, self.problems_count = len(absent), len(found.problems)
        self.is_bad = self.is_bad or bool(absent)
        self.notes += notes_in_use(found.log_dirs)

    @property
    def status(self) -> int:
        if self.is_bad:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self.is_unreadable else EXIT_OK

    def descriptions(self) -> Iterator[Description]:
        from eoctl.progress import Progress, log_bytes
        from recovery.cluster.remote_segments import RemoteSegments
        from recovery.inspect.describe import describe_partition, unlisted
        from storage.dirs.partition import Partition

        remote = RemoteSegments(self._found.log_dirs)
        with Progress("reading", lambda: log_bytes(self._found.selected)) as progress:
            for selected in self._found.selected:
                image = None
                try:
                    image = self._clusters.image_for(selected.log_dir)
                    partition = Partition.of(selected, image)
                except AccessError as exc:
                    if len(self._found.selected) == 1:
                        raise
                    description = unlisted(selected, exc)
                else:
                    description = describe_partition(
                        partition, image=image, on_bytes=progress.advance
                    )
                    if partition.remote_range is not None:
                        self.remote_segments += remote.of(partition)
                        self.notes.append(remote.report(partition))
                self.segments += description.segments
                self.notes += map(str, description.problems)
                self.notes += description.remarks
                self.is_bad = self.is_bad or description.is_bad
                self.is_unreadable = self.is_unreadable or description.is_unreadable
                self._place(selected, description, image)
                yield description
        self.notes += self._in_cluster.notes()

    def _place(self, selected: Selected, description: Description, image: Any) -> None:
        """Add the metadata's state of a partition, and whether the metadata are complete."""
        path, name = selected.partition
        if name.topic == METADATA_TOPIC:
            return
        self._in_cluster.add_image(image)
        self._in_cluster.add_unread(self._clusters.unread)
        self._in_cluster.add(f"{name.topic}-{name.partition}", path, description.placed)
        self.is_unreadable = self.is_unreadable or self._in_cluster.is_short
