"""The check of all log dirs of one node, with the actions of a broker before it opens partitions.

    DIR-1  a directory that is no partition                   refuses to start
    DIR-2  a partition live in two log dirs                   refuses to start
    DIR-3  `meta.properties` missing, damaged, contradictory  refuses to start, or loses the log dir
    DIR-5  unfinished work of writes and of the cleaner       completes or removes it
    DIR-6  directories set aside                              deletes, resumes or leaves them
    DIR-7  a checkpoint that does not parse                   REC-2, by file and kind of fault
    CSD-1  the clean-shutdown marker has no readable content  loses the broker epoch

The check uses only data that `storage.dirs.log_dir` has read. `LogDir.problems` also has unreadable
files. These show nothing about the content of the disk, and are no findings. Sources:
LogManager.loadLogs, MetaPropertiesEnsemble, KafkaRaftServer.initializeLogDirs, CheckpointFile,
LogCleanerManager. Partitions without a directory (DIR-8): `absent`.
"""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.changes.journals.journal import Status, read_journal
from recovery.changes.journals.listing import (
    UNFINISHED_NAME,
    unfinished_path,
    ways_out,
    ways_out_of,
)
from recovery.checks.context import broker_version as releases
from recovery.checks.context.broker_version import REFUSES, check_release, check_same_properties
from recovery.cluster.placement import (
    DirFate,
    NodePlacement,
    find_absent,
    find_unassigned,
    nodes_of,
)
from recovery.rules.findings import Finding, Severity
from storage.counts import counted
from storage.dirs.discovery import UNKNOWN_PARTITION, duplicate_partitions, is_foreign
from storage.dirs.log_dir import MAX_FILE_BYTES, StoppedState
from storage.errors import AccessError, CorruptError, FormatError, as_argument, pasted
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOCK_FILE_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    DirState,
    FileKind,
    FileSuffix,
    parse_partition_name,
)
from storage.files.broker_lock import probe
from storage.files.positioned_file import read_small_file
from storage.formats.checkpoint import offset_checkpoint_problems
from storage.formats.clean_shutdown import problems as clean_shutdown_problems
from storage.formats.java_text import NotANumberError
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.meta_properties import problems as meta_properties_problems
from storage.formats.partition_metadata import NotCaughtError, format_uuid, parse_partition_metadata
from storage.formats.partition_metadata import problems as partition_metadata_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from recovery.changes.journals.losses import JournalLoss
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.checks.context.collector import Collector
    from recovery.cluster.clusters import Clusters
    from recovery.cluster.placement import AbsentPartition, Blocked, Placed
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import ServerProperties
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition import Partition

    CollectorOf = Callable[[LogDir], Collector]


LOSES_LOG_DIR = "takes this log dir offline; without another log dir it stops"
IGNORES_IT = "ignores it"

# The action if a field of an entry is no number. The checkpoint then has no entries.
_CHECKPOINT_ACTIONS = {
    RECOVERY_POINT_NAME: "recovers all segments of all partitions, unless the stop was clean",
    LOG_START_NAME: "starts each log at its first segment: deleted records are back",
    HIGH_WATERMARK_NAME: "does not get to serve the partitions of this log dir",
    CLEANER_NAME: "its log cleaner stops: nothing is compacted",
}

# Any other fault is an I/O error to a broker. With these two files the log dir is offline before
# its partitions are loaded. Loading them then ends a broker 4.3.1 even if it has other log dirs.
_READ_FIRST = {RECOVERY_POINT_NAME, LOG_START_NAME}

_SUFFIX_ACTIONS = {
    FileSuffix.DELETED: "deletes them",
    FileSuffix.CLEANED: "deletes them",
    FileSuffix.SWAP: "replaces the segments that they were compacted from, or deletes them",
    FileSuffix.TMP: "ignores them",
    FileSuffix.PART: "deletes them",
}

_FATE_ACTIONS = {
    DirFate.STRAY: "renames it to -stray",
    DirFate.BLOCKED: REFUSES,
    DirFate.PROMOTED: "renames it to {}",
    DirFate.EMPTIED: "makes {} again, and empties the copy to match",
}

_STATE_ACTIONS = {
    DirState.DELETE: "deletes it after file.delete.delay.ms",
    DirState.FUTURE: "goes on to copy the replica into it",
    DirState.STRAY: "leaves it aside",
}


def check_log_dirs(
    log_dirs: Sequence[LogDir],
    collector_of: CollectorOf,
    *,
    is_one_node: bool = True,
    node: ServerProperties | None = None,
    placements: Sequence[NodePlacement] | None = None,
    version: BrokerVersion | None = None,
) -> None:
    """Check the top level of log dirs, each with its own collector, and all of them together.

    Args:
        log_dirs: all known log dirs. Entries that are not `is_log_dir` only count for DIR-2.
        collector_of: returns the collector of a log dir.
        is_one_node: they belong to one node. Else a stated node id separates nodes.
        node: its configuration. None: not given.
        placements: of the nodes. None: without metadata.
        version: the release that starts. None: CHECKED.
    """
    if placements is None:
        placements = placements_of(log_dirs, lambda _: None, version, is_one_node=is_one_node)
    is_kraft = any(
        each.name.topic == METADATA_TOPIC for log_dir in log_dirs for each in log_dir.partitions
    )
    for log_dir in log_dirs:
        collector = collector_of(log_dir)
        _check_foreign(log_dir, collector)
        _check_own_meta(log_dir, collector, version, is_kraft=is_kraft)
        if node is not None:
            _check_configured(log_dir, collector, node)
        _check_marker(log_dir, collector)
        _check_leftovers(log_dir, collector)
        _check_set_aside(log_dir, collector, placements, version)
        _check_checkpoints(log_dir, collector, version)
        if version is not None:
            check_release(log_dir, collector, version, is_kraft=is_kraft)
    _check_duplicates(log_dirs, collector_of, placements)
    _check_agreement(log_dirs, collector_of, version, is_one_node=is_one_node)


def placements_of(
    log_dirs: Iterable[LogDir],
    image_for: Callable[[LogDir], ClusterImage | None],
    version: BrokerVersion | None,
    *,
    is_one_node: bool,
) -> list[NodePlacement]:
    """Return the effect of a start of a release on the directories of each node."""
    return [
        NodePlacement(
            node,
            image_for(node[0]),
            knows_directories=not releases.is_before(version, releases.DIRECTORY_IDS),
            knows_strays=not releases.is_before(version, releases.STRAYS_WHEN_LOADED),
        )
        for node in nodes_of(log_dirs, is_one=is_one_node)
    ]


def check_leftovers(partition: Partition, collector: Collector) -> None:
    """Check a partition directory for unfinished work (DIR-5), with a finding for each suffix.

    A running broker's files are no finding. `.deleted` files are a finding only after a clean stop.
    """
    if partition.stopped is StoppedState.LIVE:
        return
    by_suffix = defaultdict(list)
    for each in partition.files.others:
        if each.name.suffix is not FileSuffix.NONE and each.name.kind is not FileKind.UNKNOWN:
            by_suffix[each.name.suffix].append(each)
    if partition.stopped is StoppedState.UNCLEAN:
        by_suffix.pop(FileSuffix.DELETED, None)
    for suffix, entries in sorted(by_suffix.items()):
        size_bytes = sum(each.file_bytes for each in entries)
        collector.add(
            "DIR-5",
            partition.path,
            f"{suffix} files are left",
            found=f"{counted(len(entries), 'file')}, {counted(size_bytes, 'byte')}",
            broker_action=_SUFFIX_ACTIONS[suffix],
        )


# --- one log dir ----------------------------------------------------------------------------------


def _format_errors(log_dir: LogDir) -> Iterable[FormatError]:
    return (each for each in log_dir.problems if isinstance(each, FormatError))


def _check_foreign(log_dir: LogDir, collector: Collector) -> None:
    for error in log_dir.problems:
        if isinstance(error, FormatError) and is_foreign(error):
            collector.add(
                error.check_id,
                error.path,
                "a directory that is no partition",
                expected=error.expected,
                found=error.found,
                broker_action=REFUSES,
            )


def _check_own_meta(
    log_dir: LogDir, collector: Collector, version: BrokerVersion | None, *, is_kraft: bool
) -> None:
    path = os.fspath(Path(log_dir.path, META_PROPERTIES_NAME))
    is_reported = any(each.path == path for each in log_dir.problems)
    for error in _format_errors(log_dir):
        if error.path == path:
            # Unreadable meta.properties next to the metadata log end any node.
            has_metadata = any(each.name.topic == METADATA_TOPIC for each in log_dir.partitions)
            collector.add_error(error, broker_action=REFUSES if has_metadata else LOSES_LOG_DIR)
    if log_dir.meta is None:
        if log_dir.is_log_dir and not is_reported:
            message = f"{META_PROPERTIES_NAME} is missing"
            action = REFUSES if is_kraft else f"{REFUSES} (with KRaft)"
            collector.add("DIR-3", path, message, broker_action=action)
        return
    lacks_node, lacks_cluster = log_dir.meta.node_id is None, log_dir.meta.cluster_id is None
    if is_kraft and lacks_node is not lacks_cluster:
        what = "node" if lacks_node else "cluster"
        message = f"{META_PROPERTIES_NAME} does not name the {what}"
        collector.add("DIR-3", path, message, broker_action=REFUSES)
    if lacks_node and lacks_cluster:
        # An empty file parses as version 0, in which nothing is required.
        is_certain = is_kraft or not releases.is_before(version, releases.WITHOUT_ZOOKEEPER)
        action = REFUSES if is_certain else f"{REFUSES}, unless another log dir names them"
        message = f"{META_PROPERTIES_NAME} names neither a node nor a cluster"
        collector.add("DIR-3", path, message, broker_action=action)
    if log_dir.meta.version and (log_dir.meta.node_id or 0) < 0:
        message = f"{META_PROPERTIES_NAME}: no broker can be node {log_dir.meta.node_id}"
        collector.add("DIR-3", path, message, broker_action=REFUSES)
    directory_id = log_dir.meta.directory_id
    if directory_id is None or int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS:
        return
    try:
        found = meta_properties_problems(read_small_file(path, MAX_FILE_BYTES))
    except OSError:  # removed or changed since
        return
    action = IGNORES_IT if releases.is_before(version, releases.DIRECTORY_IDS) else REFUSES
    for error in found:
        collector.add_error(error, path=path, broker_action=action)


def _check_configured(log_dir: LogDir, collector: Collector, node: ServerProperties) -> None:
    """Check DIR-3 and DIR-2 against the configuration of the broker."""
    meta = log_dir.meta
    if meta is not None and meta.node_id is not None and node.node_id not in {None, meta.node_id}:
        path = os.fspath(Path(log_dir.path, META_PROPERTIES_NAME))
        message = f"the node id is not the configured node id, {node.node_id}"
        _contradicts(collector, path, message, str(node.node_id), str(meta.node_id))
    if os.path.realpath(log_dir.path) == os.path.realpath(node.metadata_log_dir):
        return
    for each in log_dir.partitions:
        if each.name.topic == METADATA_TOPIC and each.name.state is DirState.LIVE:
            collector.add(
                "DIR-2",
                each.path,
                f"the metadata log belongs into {node.metadata_log_dir}",
                topic=METADATA_TOPIC,
                partition=each.name.partition,
                expected=node.metadata_log_dir,
                found=log_dir.path,
                broker_action=REFUSES,
            )


def _check_marker(log_dir: LogDir, collector: Collector) -> None:
    if not log_dir.clean_shutdown:
        return
    path = os.fspath(Path(log_dir.path, CLEAN_SHUTDOWN_NAME))
    try:
        found = clean_shutdown_problems(read_small_file(path, MAX_FILE_BYTES))
    except OSError:  # only its existence matters
        return
    for error in found:
        collector.add_error(error, path=path, broker_action="takes the stop for a clean stop")


def _check_leftovers(log_dir: LogDir, collector: Collector) -> None:
    if log_dir.stopped is StoppedState.LIVE:
        return
    for each in log_dir.others:
        is_known = each.file.kind is not FileKind.UNKNOWN
        if each.is_dir or not is_known or each.file.suffix is FileSuffix.NONE:
            continue
        try:
            found = f"{Path(each.path).stat().st_size} bytes"
        except OSError:  # removed since it was listed
            continue
        message = f"a {each.file.suffix} file is left"
        collector.add("DIR-5", each.path, message, found=found, broker_action="ignores it")


def _check_set_aside(
    log_dir: LogDir,
    collector: Collector,
    placements: Sequence[NodePlacement],
    version: BrokerVersion | None,
) -> None:
    is_live = log_dir.stopped is StoppedState.LIVE
    for each in log_dir.partitions:
        state = each.name.state
        if state is DirState.LIVE or (is_live and state is not DirState.STRAY):
            continue
        node = next((node for node in placements if each.path in node.placed), None)
        fields: dict[str, Any] = {
            "topic": each.name.topic,
            "partition": each.name.partition,
            "found": _size(each.path),
        }
        if node is None:
            action = _state_action(state, version)
            collector.add(
                "DIR-6", each.path, f"a -{state} directory", broker_action=action, **fields
            )
        elif node.placed[each.path].fate is not DirFate.DUPLICATE:
            _add_future(node.placed[each.path], node, collector, fields)


def _add_future(
    placed: Placed, node: NodePlacement, collector: Collector, fields: dict[str, Any]
) -> None:
    """Add a finding for a -future directory, with the action of a start."""
    path, other = placed.directory.path, placed.other
    severity, message, fix = Severity.NOTE, "a -future directory", ""
    action = _FATE_ACTIONS[placed.fate].format(placed.directory.topic_partition)
    if other:
        shortfall = node.shortfall(placed)
        if placed.fate is DirFate.BLOCKED:
            severity = Severity.ERROR
            message = f"the metadata assign this -future directory here, and {other} blocks it"
            # The longer log stays. Without the live directory the broker renames this directory.
            fix = f"Move {other if node.is_longer(placed) else path} away."
        else:
            action += f", and removes {other}"
        if shortfall is not None and placed.fate is DirFate.PROMOTED:
            offsets = f"{shortfall[0]} to {shortfall[1] - 1}"
            message = f"a -future directory without offsets {offsets}, which {other} has"
            severity, fix = Severity.ERROR, f"Move {path} away."
    collector.add(
        "DIR-6", path, message, severity=severity, broker_action=action, fix=fix, **fields
    )


def _state_action(state: DirState, version: BrokerVersion | None) -> str:
    if state is DirState.STRAY and releases.is_before(version, releases.STRAY_NAMES):
        return REFUSES
    return _STATE_ACTIONS[state]


def _size(path: str) -> str:
    """Return the size of the files in a partition directory, as text."""
    size_bytes = files_count = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                size_bytes += entry.stat(follow_symlinks=False).st_size
                files_count += 1
    except OSError as exc:
        return f"cannot be listed: {exc.strerror}"
    return f"{counted(files_count, 'file')}, {counted(size_bytes, 'byte')}"


def _check_checkpoints(
    log_dir: LogDir, collector: Collector, version: BrokerVersion | None
) -> None:
    is_strict = releases.is_before(version, releases.LENIENT_CHECKPOINTS)
    read_first = () if releases.is_before(version, releases.DIRECTORY_IDS) else _READ_FIRST
    for error in _format_errors(log_dir):
        name = Path(error.path).name
        action = _CHECKPOINT_ACTIONS.get(name)
        if action is not None and error.check_id == "DIR-7":
            if is_strict or not isinstance(error, NotANumberError):
                action = REFUSES if name in read_first else LOSES_LOG_DIR
            fix = f"eoctl repair {shlex.quote(as_argument(log_dir.path))} --strategy salvage"
            collector.add_error(error, broker_action=action, fix=fix)
    reported = {error.path for error in _format_errors(log_dir)}
    for name in _CHECKPOINT_ACTIONS:
        path = Path(log_dir.path, name)
        if os.fspath(path) in reported:
            continue
        try:
            data = read_small_file(path, MAX_FILE_BYTES)
        except OSError:
            continue  # missing, or a problem of the log dir already
        if data.count(b"\n") < 2:
            continue  # an empty checkpoint has several valid forms
        for error in offset_checkpoint_problems(data):
            collector.add_error(error, path=os.fspath(path), broker_action="reads it all the same")


# --- several log dirs -----------------------------------------------------------------------------


def _check_duplicates(
    log_dirs: Sequence[LogDir], collector_of: CollectorOf, placements: Sequence[NodePlacement]
) -> None:
    """Check DIR-2 for the metadata log, and for partitions that the metadata place."""
    owners = {each.path: (log_dir, each) for log_dir in log_dirs for each in log_dir.partitions}
    for error in duplicate_partitions(log_dirs):
        log_dir, directory = owners[error.path]
        if directory.name.topic == METADATA_TOPIC:
            collector_of(log_dir).add_error(
                error, topic=METADATA_TOPIC, partition=0, broker_action=REFUSES
            )
    for each in (one for node in placements for one in node.placed.values()):
        if each.fate is not DirFate.DUPLICATE:
            continue
        what = "live" if each.directory.name.state is DirState.LIVE else "a -future directory"
        action = REFUSES
        if not each.is_certain:
            action += ", unless the cluster's metadata make one of them stray"
        collector_of(each.log_dir).add(
            "DIR-2",
            each.directory.path,
            f"{each.directory.topic_partition} is {what} in another directory too",
            topic=each.directory.name.topic,
            partition=each.directory.name.partition,
            expected=f"one directory that is {what}",
            found=each.other,
            broker_action=action,
            fix=f"Move {each.directory.path} away." if each.is_certain else "",
        )


def _check_agreement(
    log_dirs: Sequence[LogDir],
    collector_of: CollectorOf,
    version: BrokerVersion | None,
    *,
    is_one_node: bool,
) -> None:
    """Check DIR-3: cluster id and node id equal the first log dir's ids.

    Log dirs with one node id and two cluster ids may belong to two nodes.
    """
    first: dict[tuple[object, str], tuple[str, str]] = {}  # by node and key: value and path
    clusters: dict[str, tuple[str, str]] = {}
    directories: dict[tuple[object, bytes], str] = {}
    first_meta: dict[object, LogDir] = {}
    for log_dir in log_dirs:
        meta = log_dir.meta
        if meta is None:
            continue
        node = None if is_one_node else (meta.cluster_id, meta.node_id)
        path = os.fspath(Path(log_dir.path, META_PROPERTIES_NAME))
        node_id = None if meta.node_id is None else str(meta.node_id)
        if not is_one_node and node_id is not None and meta.cluster_id is not None:
            expected, other = clusters.setdefault(node_id, (meta.cluster_id, path))
            if meta.cluster_id != expected:
                collector_of(log_dir).add(
                    "DIR-3",
                    path,
                    f"{other} has the same node id, and another cluster id",
                    severity=Severity.WARNING,
                    expected=expected,
                    found=meta.cluster_id,
                    broker_action=f"{REFUSES} if both log dirs belong to one node",
                )
        for what, value in (("cluster id", meta.cluster_id), ("node id", node_id)):
            if value is None:
                continue
            expected, other = first.setdefault((node, what), (value, path))
            if value != expected:
                _contradicts(
                    collector_of(log_dir),
                    path,
                    f"{what} differs from the {what} of {other}",
                    expected,
                    value,
                )
        if version is not None:
            check_same_properties(
                log_dir, first_meta.setdefault(node, log_dir), collector_of, version
            )
        if meta.directory_id is not None and not releases.is_before(
            version, releases.DIRECTORY_IDS
        ):
            other = directories.setdefault((node, meta.directory_id), path)
            if other != path:
                message = f"{other} has the same directory id"
                found = format_uuid(meta.directory_id)
                _contradicts(collector_of(log_dir), path, message, "one of its own", found)


def _contradicts(collector: Collector, path: str, message: str, expected: str, found: str) -> None:
    collector.add(
        "DIR-3",
        path,
        message,
        severity=Severity.ERROR,
        expected=expected,
        found=found,
        broker_action=REFUSES,
    )


# -- DIR-8: partitions in checkpoints or metadata without a directory.
#
# A broker drops the lines, and creates its own replicas again. They are empty, from its log start
# offset.


# The first of these checkpoints that names a partition gets the finding for its loss.
_REPORTING = (HIGH_WATERMARK_NAME, RECOVERY_POINT_NAME)

_HELD_ACTIONS = {
    DirState.STRAY: "leaves it aside",
    DirState.DELETE: "deletes it after file.delete.delay.ms",
    DirState.FUTURE: "truncates it to match the live directory",
}


def check_absent(
    log_dirs: Sequence[LogDir],
    clusters: Clusters,
    collector_of: Callable[[LogDir], Collector],
    blocked: Sequence[Blocked] = (),
) -> None:
    """Check the log dirs of one node for partitions without a directory (DIR-8, DIR-6).

    Args:
        log_dirs: the log dirs that are given as a whole.
        clusters: for their metadata.
        collector_of: returns the collector of a log dir.
        blocked: data in directories with a suffix, of these and other log dirs.
    """
    by_path = {each.path: each for each in log_dirs}
    for held in blocked:
        _add_blocked(held, collector_of(held.log_dir))
    for each in find_absent(log_dirs, clusters, blocked):
        _add_lines(each, collector_of(by_path[each.log_dir]))
    for each in find_unassigned(log_dirs, clusters):
        log_dir = by_path[each.log_dir]
        has_checkpoints = log_dir.recovery_points is not None or log_dir.high_watermarks is not None
        collector_of(log_dir).add(
            "DIR-8",
            each.log_dir,
            f"a partition without a directory: {each.why}",
            # Without any checkpoint there is no evidence of earlier data.
            severity=None if has_checkpoints else Severity.WARNING,
            topic=each.key.topic,
            partition=each.key.partition,
            broker_action="makes it, empty",
        )


def _add_blocked(held: Blocked, collector: Collector) -> None:
    """Add a finding (DIR-6) for offsets that only an unserved directory has."""
    does = _HELD_ACTIONS[held.state]
    if not held.live:
        does += f", and makes {held.key} again, empty"
    collector.add(
        "DIR-6",
        held.path,
        f"{held.missing.offsets} of {held.key} are in no directory that a broker serves",
        severity=Severity.ERROR,
        topic=held.key.topic,
        partition=held.key.partition,
        base_offset=held.base_offset,
        last_offset=held.end_offset - 1,
        expected=f"in {held.live}" if held.live else "a live directory",
        found="only here",
        broker_action=does,
        fix=held.undo_steps,
    )


def _add_lines(absent: AbsentPartition, collector: Collector) -> None:
    names = [name for name, _ in absent.lines]
    reporting = next((each for each in _REPORTING if each in names), None)
    missing = absent.missing
    for name, offset in absent.lines:
        is_loss = missing is not None and name == reporting
        collector.add(
            "DIR-8",
            os.fspath(Path(absent.log_dir, name)),
            f"an entry of a partition that is not in this log dir: {absent.why}"
            if missing is None or not is_loss
            else f"{missing.offsets} are missing: the whole partition has no directory",
            severity=Severity.ERROR if is_loss else None,
            topic=absent.key.topic,
            partition=absent.key.partition,
            base_offset=missing.base_offset if missing is not None and is_loss else None,
            last_offset=missing.last_offset if missing is not None and is_loss else None,
            found=str(offset),
            broker_action="drops it",
        )


# -- journals next to a log dir: JNL-2, an unfinished change; JNL-3, records lost by a change.
#
# A broker ignores the file that marks an unfinished change. It uses files of which some have the
# old and some the new state. Therefore the finding comes before a broker is started.


CHECK_ID = "JNL-2"


def unfinished_changes(log_dirs: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each log dir with an unfinished change, without taking a lock.

    If a process holds the lock, it is a warning: the change may still be running.
    """
    for log_dir in dict.fromkeys(map(os.path.realpath, log_dirs)):
        try:
            path = unfinished_path(log_dir)
        except AccessError as error:
            yield _finding(log_dir, f"cannot be used: {error}", error.next_step)
            continue
        if path is None:
            continue
        try:
            found = read_journal(path)
        except (AccessError, CorruptError):
            yield _finding(log_dir, f"a change is unfinished; {ways_out_of(log_dir, path)}", "")
            continue
        what = f"a change by {found.command} has not ended"
        if found.status is Status.APPLIED:
            what = f"a change by {found.command} is done, but not closed"
        elif found.status in {Status.UNDOING, Status.UNDONE}:
            what = f"the undo of a change by {found.command} has not ended"
        is_undo = found.status in {Status.UNDOING, Status.UNDONE}
        fix = f"eoctl {'undo' if is_undo else 'apply'} {path}"
        yield _finding(log_dir, f"{what}: {ways_out(found)}", fix)


def lost_by_changes(
    losses: Iterable[JournalLoss], directories: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding for each applied change that lost something in one of these directories."""
    known = {os.path.realpath(each): each for each in directories}
    for each in losses:
        name = parse_partition_name(Path(each.directory).name)
        directory = known.get(os.path.realpath(each.directory))
        if directory is None or name is None:
            continue
        severity = Severity.ERROR if each.lost.is_acknowledged else Severity.NOTE
        yield Finding(
            check_id="JNL-3",
            severity=Severity.WARNING if each.is_moved else severity,
            path=directory,
            message=each.reported,
            topic=name.topic,
            partition=name.partition,
            base_offset=each.base_offset,
            last_offset=each.last_offset,
            broker_action="nothing",
            fix=f"eoctl diff {pasted(each.journal)}",
        )


def is_explained(finding: Finding, losses: Sequence[JournalLoss]) -> bool:
    """Return whether a change of eoctl that lost data in that partition explains a finding.

    Examples are a gap between batches (SEG-4), and producers' sequences after it (PRD-1).
    """
    first, last = finding.base_offset, finding.last_offset
    if finding.check_id == "SEG-4" and first is not None and last is not None:
        return any(each.explains(first, last) for each in losses)
    is_behind = finding.check_id == "PRD-1" and finding.severity is Severity.NOTE
    return is_behind and any(
        last is not None and last < (first or 0) for each in losses for _, last in each.ranges
    )


def _finding(log_dir: str, message: str, fix: str) -> Finding:
    is_held = probe(Path(log_dir, LOCK_FILE_NAME)).is_held
    severity = Severity.WARNING if is_held else Severity.ERROR
    path = str(Path(log_dir, UNFINISHED_NAME))
    action = "ignores it, and changes more"
    return Finding(
        check_id=CHECK_ID,
        severity=severity,
        path=path,
        message=message,
        broker_action=action,
        fix=fix,
    )


# -- a partition directory compared with the cluster's metadata: rule DIR-4.
#
# `partition.metadata` must exist and parse. Its topic id and the partition number must match the
# metadata, and this broker must be a replica. Else a KRaft broker sets the directory aside as
# `-stray` when it starts. It first fetches the newest metadata, which may settle a finding that
# is based on older metadata on disk. Sources: PartitionMetadataFile,
# UnifiedLog.initializeTopicId, LogManager.isStrayKraftReplica,
# ReplicaManager.maybeUpdateTopicAssignment.


SETS_ASIDE = "renames the directory to -stray and does not serve it, unless newer metadata differ"
# Releases before 3.7.1, once the logs are loaded.
DELETES = "deletes the directory after file.delete.delay.ms, unless newer metadata differ"
WRITES_AGAIN = "writes it again, if the replica is one of its own; else deletes no replica at all"


def sets_aside(version: BrokerVersion | None) -> str:
    """Return the action of a KRaft broker on a replica that is not its own."""
    if releases.is_before(version, releases.KNOWS_STRAYS):
        return "nothing"
    if releases.is_before(version, releases.STRAYS_WHEN_LOADED):
        return DELETES
    return SETS_ASIDE


def check_against_cluster(
    partition: Partition,
    image: ClusterImage | None,
    collector: Collector,
    version: BrokerVersion | None = None,
) -> None:
    """Check the `partition.metadata` of a partition directory, also against the cluster (DIR-4).

    An empty or incomplete image is not used. A running broker's directory is only checked for the
    file itself: it may be about to be created or deleted.
    """
    name = partition.directory.name
    if name.topic == METADATA_TOPIC or name.partition == UNKNOWN_PARTITION:
        return
    topic_id = read_topic_id(partition, collector)
    if name.state in {DirState.DELETE, DirState.STRAY}:
        return
    is_live = partition.stopped is StoppedState.LIVE
    if partition.files.other(PARTITION_METADATA_NAME) is None:
        _check_missing(partition, image, collector, version)
    elif image is not None and not is_live and releases.is_passed_over(image, version):
        collector.add(
            "DIR-4",
            _path(partition),
            f"Kafka {version} begins a new cluster, which does not have this topic",
            severity=Severity.ERROR,
            broker_action=sets_aside(version),
        )
    elif (
        topic_id is not None
        and image is not None
        and image.is_complete
        and image.end_offset
        and not is_live
    ):
        _check_assignment(partition, topic_id, image, collector, version)


def read_topic_id(partition: Partition, collector: Collector) -> bytes | None:
    """Check the file alone, and return its topic id, or None if there is none."""
    entry = partition.files.other(PARTITION_METADATA_NAME)
    data = partition.read_file(entry)
    if entry is None or data is None:
        return None
    for error in partition_metadata_problems(data):
        action = REFUSES if isinstance(error, NotCaughtError) else LOSES_LOG_DIR
        is_damage = error.check_id == "DIR-4"
        collector.add_error(error, path=entry.path, broker_action=action if is_damage else "")
    try:
        return parse_partition_metadata(data).topic_id
    except FormatError:
        return None


def _path(partition: Partition) -> str:
    return os.fspath(Path(partition.path, PARTITION_METADATA_NAME))


def _check_missing(
    partition: Partition,
    image: ClusterImage | None,
    collector: Collector,
    version: BrokerVersion | None,
) -> None:
    """Add a finding (DIR-4): a KRaft broker writes the file before any record."""
    meta = None if partition.log_dir is None else partition.log_dir.meta
    if image is None and (meta is None or meta.version == 0):
        return  # brokers before topic ids had no such file
    has_data = any(each.log.file_bytes for each in partition.segments)
    if partition.stopped is StoppedState.LIVE and not has_data:
        return
    action = SETS_ASIDE
    if releases.is_before(version, releases.STRAYS_WHEN_LOADED):
        # 3.7.0 looks for strays first, and a log without an id ends it.
        is_3_7_0 = not releases.is_before(version, releases.DIRECTORY_IDS)
        action = REFUSES if is_3_7_0 else WRITES_AGAIN
    collector.add(
        "DIR-4",
        _path(partition),
        f"{PARTITION_METADATA_NAME} is missing",
        severity=Severity.WARNING if has_data else Severity.NOTE,
        broker_action=action,
    )


def _check_assignment(
    partition: Partition,
    topic_id: bytes,
    image: ClusterImage,
    collector: Collector,
    version: BrokerVersion | None,
) -> None:
    name = partition.directory.name
    aside = sets_aside(version)
    topic = image.topic_by_id(topic_id)

    def add(message: str, severity: Severity, expected: str, found: str, action: str) -> None:
        collector.add(
            "DIR-4",
            _path(partition),
            message,
            severity=severity,
            expected=expected,
            found=found,
            broker_action=action,
        )

    if topic is None:
        _add_unknown_topic(partition, topic_id, image, collector, aside)
        return
    if topic.name != name.topic:
        add("the topic id belongs to another topic", Severity.ERROR, name.topic, topic.name, "")
        return
    placed = topic.partitions.get(name.partition)
    if placed is None:
        count = counted(len(topic.partitions), "partition")
        message = "the topic has no such partition"
        add(message, Severity.WARNING, count, str(name.partition), aside)
        return
    meta = None if partition.log_dir is None else partition.log_dir.meta
    if meta is None or meta.node_id is None:
        return
    if meta.node_id not in placed.replicas:
        replicas = f"one of {list(placed.replicas)}"
        message = "this broker has no replica of the partition"
        add(message, Severity.WARNING, replicas, str(meta.node_id), aside)
        return
    assigned = placed.directories[placed.replicas.index(meta.node_id)]
    is_known = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
    own = meta.directory_id
    if is_known and own not in {None, assigned} and name.state is DirState.LIVE:
        add(
            "the replica is assigned to another log dir",
            Severity.NOTE,
            format_uuid(assigned),
            format_uuid(own or b""),
            "serves it where it is"
            if releases.is_before(version, releases.DIRECTORY_IDS)
            else "has the controller assign it to this log dir",
        )


def _add_unknown_topic(
    partition: Partition,
    topic_id: bytes,
    image: ClusterImage,
    collector: Collector,
    aside: str,
) -> None:
    """Add a finding (DIR-4): no topic has this id, or an earlier topic of that name had it."""
    namesake = image.topics.get(partition.topic)
    if namesake is not None:
        message, severity = "the topic has another id: it was created again", Severity.ERROR
        expected = format_uuid(namesake.topic_id)
    else:
        is_deleted = topic_id in image.deleted_topics
        message = "the topic was deleted" if is_deleted else "no topic of the cluster has this id"
        severity, expected = Severity.WARNING, ""
    collector.add(
        "DIR-4",
        _path(partition),
        message,
        severity=severity,
        expected=expected,
        found=format_uuid(topic_id),
        broker_action=aside,
    )
