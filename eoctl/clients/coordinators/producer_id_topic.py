"""The partition with producer ids: opened where it is safe, refused where it would be lost.

A KRaft broker sets aside a directory if the cluster's metadata does not list its topic. It also
deletes old records of a topic that is not compacted. In a log dir of a cluster, the topic must
therefore exist in the cluster. In a log dir without metadata, the directory is made here.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.identity import require_out_of_reach
from eoctl.clients.partitions.open_partition import clock_of, price_of
from eoctl.clients.partitions.target import TargetOptions, require_log_dir, resolve_target
from eoctl.clock import resolve_now
from recovery.changes.journals.listing import require_finished
from recovery.cluster.clusters import image_around
from recovery.replay.recover_state import known_states
from recovery.replay.snapshots import Clock
from storage.dirs.partition_files import list_partition
from storage.errors import AccessError, RefusedError
from storage.file_names import CLEAN_SHUTDOWN_NAME, PRODUCER_IDS_TOPIC, DirState
from storage.files.broker_lock import take_in_turn
from storage.formats.partition_metadata import new_topic_id
from storage.limits import INT64_MAX
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS
from storage.writing.producer_ids import DEFAULT_BLOCK_SIZE, DIRECTORY_NAME, ProducerIds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clock import Now
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.files.fsio import FileSystem

DEFAULT_WAIT_MS = 5000
_INSPECTIONS = 3
CREATE = (
    f"kafka-topics.sh --create --topic {PRODUCER_IDS_TOPIC} --partitions 1 --replication-factor 1"
    " --config cleanup.policy=compact, with the broker running"
)
NO_EXPIRY_MS = INT64_MAX + 1


class IdOptions(NamedTuple):
    """The options of the command line."""

    metadata_dir: str | None = None
    topic_id: str | None = None
    single_copy: bool = False
    broker_is_stopped: bool = False
    wait_ms: int = DEFAULT_WAIT_MS
    block_size: int = DEFAULT_BLOCK_SIZE
    expiration_ms: int = DEFAULT_EXPIRATION_MS
    now: str | None = None


class OpenIds(NamedTuple):
    """The producer ids of a log dir.

    Attributes:
        ids: the current state.
        log_dir: the parent directory.
        clock: decides the expiry of leases and producer states.
        now: source of the clock.
        notes: messages for people. More may be added.
    """

    ids: ProducerIds
    log_dir: LogDir
    clock: Clock
    now: Now
    notes: list[str]


@contextmanager
def opened_ids(path: str, options: IdOptions, fs: FileSystem) -> Iterator[OpenIds]:
    """Open the producer ids of a log dir for changes, under its lock, one process at a time.

    Raises:
        LockHeldError: the lock is not released within the maximum waiting time.
        RefusedError, UsageError, AccessError: nothing was changed.
    """
    require_log_dir(path)
    with take_in_turn([path], options.wait_ms, broker_is_stopped=options.broker_is_stopped, fs=fs):
        require_finished([path])
        had_marker = Path(path, CLEAN_SHUTDOWN_NAME).exists()
        opened = open_ids(path, options, fs)
        try:
            opened.ids.refresh()
            cut_bytes = opened.ids.cut_bytes
            if cut_bytes:
                opened.notes.append(
                    f"removed the part that a crash left of an unanswered change: {cut_bytes} bytes"
                )
            yield opened
        finally:
            opened.ids.close()
            if had_marker and not Path(path, CLEAN_SHUTDOWN_NAME).exists():
                opened.notes.append(price_of(path))


def open_ids(path: str, options: IdOptions, fs: FileSystem) -> OpenIds:
    """Open the producer ids of a log dir that the caller has locked. They are not read yet.

    Raises:
        RefusedError, UsageError, AccessError: nothing was changed.
    """
    log_dir = require_log_dir(path)
    now = resolve_now(options.now, [path])
    target, notes = _target(log_dir, options)

    def ids_in_use() -> Iterator[int]:
        for state in known_states(log_dir, Clock(now.ms, NO_EXPIRY_MS)):
            if state.unknown:
                notes.append(f"{state.unknown}: the ids in use there are unknown")
            yield from (each.producer_id for each in state.entries)

    ids = ProducerIds.at(
        path,
        fs,
        block_size=options.block_size,
        now_ms=clock_of(now),
        ids_in_use=ids_in_use,
        topic_id=target.topic_id,
        config=target.config,
    )
    return OpenIds(
        ids=ids, log_dir=log_dir, clock=Clock(now.ms, options.expiration_ms), now=now, notes=notes
    )


def inspect_ids(path: str, now_option: str | None, fs: FileSystem | None = None) -> OpenIds:
    """Read the producer ids of a log dir without a lock. Others may change them meanwhile.

    With `fs` the caller has the lock, and the ids are made durable, because the caller relies on
    them.

    Raises:
        RefusedError: they are damaged.
        UsageError, AccessError: there are none to read.
    """
    log_dir = require_log_dir(path)
    now = resolve_now(now_option, [path])
    ids = ProducerIds.at(path, fs, now_ms=clock_of(now))
    for left in reversed(range(_INSPECTIONS)):
        try:
            ids.refresh()
            break
        except (RefusedError, AccessError):  # a change in progress, or a removed segment
            if not left:
                raise
    if fs is not None:
        ids.sync()
    return OpenIds(ids=ids, log_dir=log_dir, clock=Clock(now.ms), now=now, notes=[])


def _target(log_dir: LogDir, options: IdOptions) -> tuple[WriteTarget, list[str]]:
    """Return the target of writes, with notes. Refuse a target that a broker would remove."""
    path = str(Path(log_dir.path, DIRECTORY_NAME))
    is_there = Path(path).exists()
    _require_not_set_aside(log_dir, path)
    image = image_around(log_dir, options.metadata_dir)
    chosen = TargetOptions(
        options.metadata_dir, options.topic_id, options.single_copy, may_be_internal=True
    )
    notes: list[str] = []
    require_out_of_reach(None if image is None else image.next_producer_id)
    if image is None:
        if not is_there and options.topic_id is None:
            chosen = chosen._replace(topic_id=new_topic_id())
            notes.append(
                f"{path}: is made here; a KRaft broker whose cluster does not know the topic sets"
                " it aside at its start"
            )
        chosen = chosen._replace(single_copy=True)
    elif PRODUCER_IDS_TOPIC in image.topics:
        _require_compacted(image, log_dir)
    elif options.topic_id is None:
        raise RefusedError(
            f"{path}: the cluster's metadata does not know the topic. A broker would set the"
            " directory aside at its start",
            next_step=f"{CREATE}; or --topic-id ID --single-copy, to create it later",
        )
    target = resolve_target(path, chosen)
    notes += target.notes
    return target, notes


def _require_not_set_aside(log_dir: LogDir, path: str) -> None:
    for each in log_dir.partitions:
        if each.name.topic == PRODUCER_IDS_TOPIC and each.name.state is not DirState.LIVE:
            if each.name.state is DirState.DELETE and not _has_records(each.path):
                continue  # left by an interrupted creation of the directory
            raise RefusedError(
                f"{each.path}: a broker has set the producer ids aside; without them ids would be"
                " given out twice",
                next_step=f"with the broker stopped, remove its partition.metadata and rename it to"
                f" {path}, in place of one that is empty; or delete it if none of its ids is used"
                " any more",
            )


def _has_records(directory: str) -> bool:
    """Return whether a directory has records, or problems that hide whether it has."""
    files = list_partition(directory)
    return bool(files.problems) or any(each.log.file_bytes for each in files.segments)


def _require_compacted(image: ClusterImage, log_dir: LogDir) -> None:
    node_id = None if log_dir.meta is None else log_dir.meta.node_id
    policy = image.topic_config(PRODUCER_IDS_TOPIC, "cleanup.policy") or image.broker_config(
        "log.cleanup.policy", broker_id=node_id
    )
    if policy != "compact":
        raise RefusedError(
            f"{PRODUCER_IDS_TOPIC}: its cleanup.policy is {policy or 'delete'}. A broker would"
            " delete old records, and with them what was given out",
            next_step="kafka-configs.sh --alter --entity-type topics --entity-name"
            f" {PRODUCER_IDS_TOPIC} --add-config cleanup.policy=compact",
        )
