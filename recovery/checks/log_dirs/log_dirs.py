"""The log dirs of one node, seen together: what its broker meets before it opens a partition.

  DIR-1  a directory that is no partition                    refuses to start
  DIR-2  a partition live in two log dirs                    refuses to start
  DIR-3  `meta.properties` missing, damaged, contradicting   refuses to start, or loses the log dir
  DIR-5  unfinished business of writes and of the cleaner    completes or removes it
  DIR-6  directories set aside                               deletes, resumes or leaves them
  DIR-7  a checkpoint that does not parse                    REC-2, by file and kind of fault
  CSD-1  the clean-shutdown marker has no readable content   loses the broker epoch

Everything is told by what `storage.dirs.log_dir` has read already. Files that the operating system
does not give are in `LogDir.problems` too; these say nothing of the disk's content and are no
findings. Sources: LogManager.loadLogs, MetaPropertiesEnsemble, KafkaRaftServer.initializeLogDirs,
CheckpointFile, LogCleanerManager. Partitions without a directory (DIR-8): `absent`.
"""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.checks.grounds import broker_version as releases
from recovery.checks.grounds.log_dir_release import REFUSES, check_release, check_same_properties
from recovery.cluster.placement import DirFate, NodePlacement, nodes_of
from recovery.rules.findings import Severity
from storage.dirs.discovery import duplicate_partitions, is_foreign
from storage.dirs.log_dir import MAX_FILE_BYTES, StoppedState
from storage.errors import FormatError, as_argument
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    RECOVERY_POINT_NAME,
    DirState,
    FileKind,
    FileSuffix,
)
from storage.files.positioned_file import read_small_file
from storage.formats.checkpoint import offset_checkpoint_problems
from storage.formats.clean_shutdown import problems as clean_shutdown_problems
from storage.formats.java_text import NotANumberError
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.meta_properties import problems as meta_properties_problems
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from recovery.checks.grounds.broker_version import BrokerVersion
    from recovery.checks.grounds.collector import Collector
    from recovery.cluster.placement import Placed
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import ServerProperties
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition import Partition

    CollectorOf = Callable[[LogDir], Collector]

LOSES_LOG_DIR = "takes this log dir offline; without another one it stops"
IGNORES_IT = "ignores it"

# What becomes of a checkpoint where a field of an entry is no number: it has no entries then.
_CHECKPOINT_ACTIONS = {
    RECOVERY_POINT_NAME: "recovers all segments of all partitions, unless the stop was clean",
    LOG_START_NAME: "starts each log at its first segment: deleted records are back",
    HIGH_WATERMARK_NAME: "does not get to serve the partitions of this log dir",
    CLEANER_NAME: "its log cleaner stops: nothing is compacted",
}

# Any other fault is an I/O error to a broker. With these two the log dir is offline before its
# partitions are loaded, and loading them then ends a broker 4.3.1 that has other log dirs, too.
_READ_FIRST = {RECOVERY_POINT_NAME, LOG_START_NAME}

_SUFFIX_ACTIONS = {
    FileSuffix.DELETED: "deletes them",
    FileSuffix.CLEANED: "deletes them",
    FileSuffix.SWAP: "puts them in the place of what they were compacted from, or deletes them",
    FileSuffix.TMP: "ignores them",
    FileSuffix.PART: "deletes them",
}

_FATE_ACTIONS = {
    DirFate.STRAY: "renames it to -stray",
    DirFate.BLOCKED: REFUSES,
    DirFate.PROMOTED: "renames it to {}",
    DirFate.EMPTIED: "makes {} anew, and empties the copy to match",
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
        log_dirs: all that are known; entries that are not `is_log_dir` only count for DIR-2.
        collector_of: of a log dir.
        is_one_node: they are said to be of one node; else what states another node is of another.
        node: its configuration; None: not given.
        placements: of the nodes; None: without metadata.
        version: the release whose start is asked for; None: 4.3.1.
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
    """Return what a start of a release makes of the directories of each node."""
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
    """Check a partition directory for unfinished business (DIR-5), a finding for each suffix.

    Of a broker that runs it is no finding, and what is `.deleted` only of one that was stopped.
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
            found=f"{len(entries)} files, {size_bytes} bytes",
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
    is_told = any(each.path == path for each in log_dir.problems)
    for error in _format_errors(log_dir):
        if error.path == path:
            # What cannot be read in the directory of the metadata log ends any node.
            has_metadata = any(each.name.topic == METADATA_TOPIC for each in log_dir.partitions)
            collector.add_error(error, broker_action=REFUSES if has_metadata else LOSES_LOG_DIR)
    if log_dir.meta is None:
        if log_dir.is_log_dir and not is_told:
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
        # An empty file parses: one of version 0, in which nothing is required.
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
    except OSError:  # gone or changed since
        return
    action = IGNORES_IT if releases.is_before(version, releases.DIRECTORY_IDS) else REFUSES
    for error in found:
        collector.add_error(error, path=path, broker_action=action)


def _check_configured(log_dir: LogDir, collector: Collector, node: ServerProperties) -> None:
    """DIR-3 and DIR-2: against the configuration that the broker starts with."""
    meta = log_dir.meta
    if meta is not None and meta.node_id is not None and node.node_id not in {None, meta.node_id}:
        path = os.fspath(Path(log_dir.path, META_PROPERTIES_NAME))
        message = f"the node id is not the configured one, {node.node_id}"
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
    except OSError:  # its existence is what counts
        return
    for error in found:
        collector.add_error(error, path=path, broker_action="takes the stop for a clean one")


def _check_leftovers(log_dir: LogDir, collector: Collector) -> None:
    if log_dir.stopped is StoppedState.LIVE:
        return
    for each in log_dir.others:
        is_known = each.file.kind is not FileKind.UNKNOWN
        if each.is_dir or not is_known or each.file.suffix is FileSuffix.NONE:
            continue
        try:
            found = f"{Path(each.path).stat().st_size} bytes"
        except OSError:  # gone since it was listed
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
    """Tell of a -future directory with which a start does more than to go on copying."""
    path, other = placed.directory.path, placed.other
    severity, message, fix = Severity.NOTE, "a -future directory", ""
    action = _FATE_ACTIONS[placed.fate].format(placed.directory.topic_partition)
    if other:
        shortfall = node.shortfall(placed)
        if placed.fate is DirFate.BLOCKED:
            severity = Severity.ERROR
            message = f"the metadata assign this -future directory here, and {other} is in its way"
            # The longer one stays. Without the live directory the broker renames this one.
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
    """Tell the size of the files in a partition directory."""
    size_bytes = files_count = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                size_bytes += entry.stat(follow_symlinks=False).st_size
                files_count += 1
    except OSError as exc:
        return f"cannot be listed: {exc.strerror}"
    return f"{files_count} files, {size_bytes} bytes"


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
    told = {error.path for error in _format_errors(log_dir)}
    for name in _CHECKPOINT_ACTIONS:
        path = Path(log_dir.path, name)
        if os.fspath(path) in told:
            continue
        try:
            data = read_small_file(path, MAX_FILE_BYTES)
        except OSError:
            continue  # not there, or a problem of the log dir
        if data.count(b"\n") < 2:
            continue  # without entries there are several ways to write it
        for error in offset_checkpoint_problems(data):
            collector.add_error(error, path=os.fspath(path), broker_action="reads it all the same")


# --- several log dirs -----------------------------------------------------------------------------


def _check_duplicates(
    log_dirs: Sequence[LogDir], collector_of: CollectorOf, placements: Sequence[NodePlacement]
) -> None:
    """DIR-2: the metadata log, then what the metadata place."""
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
    """DIR-3: cluster id and node id are those of the first log dir that has them.

    Log dirs of one node id and two clusters may be of two nodes.
    """
    first: dict[tuple[object, str], tuple[str, str]] = {}  # by node and key: value, path
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
                    f"the node id is that of {other}, the cluster id is not",
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
                    collector_of(log_dir), path, f"{what} is not that of {other}", expected, value
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
                message = f"directory id is that of {other} too"
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
