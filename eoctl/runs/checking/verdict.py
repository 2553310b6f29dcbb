"""From a run of check to its verdict: what of each node was given, what goes, what is held."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from recovery.checks.grounds.broker_version import NEWEST, check_release, unsupported_features
from recovery.checks.grounds.collector import MAX_KEPT_COUNT, Collector
from recovery.cluster.placement import DirFate, nodes_of
from recovery.fsck.next_call import Found, next_call
from recovery.fsck.start_cut import start_cut
from recovery.fsck.verdict import (
    Checked,
    Held,
    NodeFacts,
    Obstacle,
    is_below,
    node_start,
    verdict_of,
)
from recovery.rules.findings import Severity
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.runs.checking.run import CheckRequest, CheckRun
    from recovery.fsck.one_pass import PartitionRow
    from recovery.fsck.start_cut import StartCut
    from recovery.fsck.verdict import DirectoryVerdict, NodeStart
    from recovery.rules.findings import Finding
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir

CHECKED_RELEASE = "4.3.1"  # whose start is told where no release is asked for


def verdict_of_run(run: CheckRun, request: CheckRequest) -> DirectoryVerdict:
    """Put together what a run found, which must have kept its findings; it has ended.

    What goes at a start, and since when a transaction is open, is read here: the bytes that go,
    and a batch for each partition.
    """
    partitions = dict(_listable(run))
    cuts = [*_cuts(run, partitions)]
    held = [*_held(run, partitions)]
    starts = [
        _start(run, request, each)
        for each in nodes_of(run.found.log_dirs, is_one=run.node is not None)
    ]
    call = next_call(
        Found(
            paths=tuple(request.paths),
            metadata_dir=request.metadata_dir,
            findings=run.placed,
            rows=run.rows,
            starts=starts,
            cuts=cuts,
            held=held,
        )
    )
    return verdict_of(
        release=request.broker_version or CHECKED_RELEASE,
        starts=starts,
        findings=run.placed,
        rows=run.rows,
        cuts=cuts,
        held=held,
        checked=_checked(run, request, partitions.values()),
        call=call,
        retention=run.retention,
    )


def _listable(run: CheckRun) -> Iterator[tuple[str, Partition]]:
    """Partitions by directory, without those that cannot be listed, which their rows say."""
    for each in run.jobs:
        with suppress(AccessError):
            yield each.selected.partition.path, Partition.of(each.selected, each.image)


def _checked(run: CheckRun, request: CheckRequest, partitions: Iterable[Partition]) -> Checked:
    counts = {row.path: _findings_count(row) for row in run.rows}
    listed = sum(bool(directory) for directory, _ in run.placed)
    # What is said of a directory as an entry of its log dir is a finding, too.
    told = [each.path for directory, each in run.placed if not directory]
    return Checked(
        partitions_count=len(run.rows),
        clean_count=sum(
            not counts[row.path]
            and not row.unreadable
            and not any(is_below(each, row.path) for each in told)
            for row in run.rows
        ),
        unread_count=run.unreadable_count,
        unlisted_count=sum(counts.values()) - listed,
        log_bytes=sum(row.log_bytes or 0 for row in run.rows),
        is_deep=request.is_deep,
        is_fast=request.is_fast,
        skipped_count=len(run.found.selected) - len(run.rows),
        unmarked_count=sum(
            each.high_watermark is None
            and each.directory.name.state is DirState.LIVE
            and each.topic != METADATA_TOPIC
            for each in partitions
        ),
    )


def _findings_count(row: PartitionRow) -> int:
    return (row.errors or 0) + (row.warnings or 0) + (row.notes or 0)


def _cuts(run: CheckRun, partitions: dict[str, Partition]) -> Iterator[StartCut]:
    for row in run.rows:
        if row.path not in partitions:
            continue
        try:
            changes = run.changes_of.get(row.path, ())
            cut = start_cut(partitions[row.path], row, changes, _kept_end(run, row.path))
        except EoctlError:
            continue  # it cannot be read, which the row says
        if cut is not None:
            yield cut


def _kept_end(run: CheckRun, path: str) -> int | None:
    """Return where a -future directory ends that takes the place of a longer one; None: no one."""
    for node in run.placements:
        placed = node.placed.get(path)
        if placed is not None and placed.fate is DirFate.REPLACED:
            shortfall = node.shortfall(node.placed[placed.other])
            return None if shortfall is None else shortfall[0]
    return None


def _held(run: CheckRun, partitions: dict[str, Partition]) -> Iterator[Held]:
    opened: dict[str, list[Finding]] = {}
    for directory, each in run.placed:
        if each.check_id == "TXO-1" and each.base_offset is not None:
            opened.setdefault(directory, []).append(each)
    rows = {row.path: row for row in run.rows}
    for path, found in opened.items():
        first_offset = min(each.base_offset or 0 for each in found)
        row = rows[path]
        yield Held(
            topic=row.topic,
            partition=row.partition,
            path=path,
            first_offset=first_offset,
            end_offset=row.end_offset,
            since_ms=_time_at(partitions[path], first_offset),
            is_late=any(each.severity is not Severity.NOTE for each in found),
            open_count=len(found),
            is_least=len(found) >= MAX_KEPT_COUNT,
        )


def _time_at(partition: Partition, offset: int) -> int | None:
    """Timestamp of the batch with an offset."""
    try:
        place = partition.find_offset(offset)
    except EoctlError:
        return None
    if place is None:
        return None
    header = place.batch.header
    first_ms = header.base_timestamp_ms
    return first_ms if first_ms >= 0 else None


# --- nodes ----------------------------------------------------------------------------------------


def _start(run: CheckRun, request: CheckRequest, log_dirs: list[LogDir]) -> NodeStart:
    paths = [each.path for each in log_dirs]
    rows = tuple(row for row in run.rows if any(is_below(row.path, each) for each in paths))
    image = run.clusters.image_for(log_dirs[0])
    return node_start(
        NodeFacts(
            log_dirs=tuple(log_dirs),
            whole_paths=frozenset(each.path for each in run.found.whole),
            rows=rows,
            findings=tuple(
                each
                for each in run.placed
                if any(is_below(each.finding.path, path) for path in paths)
            ),
            image=image,
            release_problems=tuple(_release_problems(log_dirs, image, request)),
            gaps=tuple(_gaps(run, request, rows)),
        )
    )


def _release_problems(
    log_dirs: list[LogDir], image: ClusterImage | None, request: CheckRequest
) -> Iterator[Obstacle]:
    """Why the newest release, which nobody has asked for, may be none for these log dirs."""
    if request.broker_version is not None:
        return
    for log_dir in log_dirs:
        collector = Collector()
        check_release(log_dir, collector, NEWEST, is_kraft=bool(image and image.end_offset))
        for each in collector.kept:
            yield Obstacle(each.path, each.message, each.check_id, fix=_NAME_RELEASE)
    for feature in unsupported_features({} if image is None else image.features, NEWEST):
        yield Obstacle("", f"Kafka {NEWEST} does not know {feature}", "KRF-4", fix=_NAME_RELEASE)


_NAME_RELEASE = "name the release that starts here: --broker-version VERSION"


def _gaps(run: CheckRun, request: CheckRequest, rows: tuple[PartitionRow, ...]) -> Iterator[str]:
    if len(run.rows) < len(run.found.selected):
        left_out_count = len(run.found.selected) - len(run.rows)
        yield f"{left_out_count} partitions were left out, as asked for"
    if request.is_fast and any(row.recovered_bytes for row in rows):
        yield "it verifies checksums, and they were not looked at (--fast)"
    if run.unread_count:
        yield f"{run.unread_count} partitions are unchanged, and were not read again (--resume)"
    if run.unreadable_count:
        count = run.unreadable_count
        yield f"{count} file{'s' * (count != 1)} could not be read"
