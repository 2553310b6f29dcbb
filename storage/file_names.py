"""Names of the files, directories and topics of a log directory, and their meaning."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from storage.limits import INT32_MAX, MAX_OFFSET

LOCK_FILE_NAME = ".lock"


METADATA_TOPIC = "__cluster_metadata"


GROUPS_TOPIC = "__consumer_offsets"


TRANSACTION_STATE_TOPIC = "__transaction_state"


REMOTE_METADATA_TOPIC = "__remote_log_metadata"


# Brokers create both with cleanup.policy=compact.
COMPACTED_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTION_STATE_TOPIC})
SHARE_GROUP_TOPIC = "__share_group_state"
COORDINATOR_TOPICS = COMPACTED_TOPICS | {SHARE_GROUP_TOPIC}


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts the text as the name of a topic."""
    return name not in {".", ".."} and _TOPIC_NAME.fullmatch(name) is not None


PRODUCER_IDS_TOPIC = "__eoctl_producer_ids"  # our own topic: `storage.writing.producer_ids`


REMOTE_INDEX_CACHE_NAME = "remote-log-index-cache"


RECOVERY_POINT_NAME = "recovery-point-offset-checkpoint"


LOG_START_NAME = "log-start-offset-checkpoint"


HIGH_WATERMARK_NAME = "replication-offset-checkpoint"


CLEANER_NAME = "cleaner-offset-checkpoint"


CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"


META_PROPERTIES_NAME = "meta.properties"


BOOTSTRAP_NAME = "bootstrap.checkpoint"
# The first snapshot of a controller in `__cluster_metadata-0`. Since 4.4 it contains the bootstrap
# records, before 4.4 only the voters of a dynamic quorum.
BEGINNING_NAME = f"{0:020d}-{0:010d}.checkpoint"


LEADER_EPOCHS_NAME = "leader-epoch-checkpoint"


PARTITION_METADATA_NAME = "partition.metadata"


QUORUM_STATE_NAME = "quorum-state"


MAX_NAME_CHARS = 255  # -delete and -stray names are truncated to this length


class FileKind(StrEnum):
    """The kind of a file, by its name alone."""

    LOG = "log"
    INDEX = "index"
    TIMEINDEX = "timeindex"
    TXNINDEX = "txnindex"
    SNAPSHOT = "snapshot"
    CHECKPOINT = "checkpoint"  # KRaft snapshot or bootstrap.checkpoint: batches, not text
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    OFFSET_CHECKPOINT = "offset-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    META_PROPERTIES = "meta.properties"
    QUORUM_STATE = "quorum-state"
    CLEAN_SHUTDOWN = "clean-shutdown"
    LOCK = "lock"
    UNKNOWN = "unknown"


# The files of a partition's log, and the files that a broker derives from it.
LOG_FILE_KINDS = frozenset(
    {
        FileKind.LOG,
        FileKind.INDEX,
        FileKind.TIMEINDEX,
        FileKind.TXNINDEX,
        FileKind.SNAPSHOT,
        FileKind.LEADER_EPOCHS,
    }
)


class FileSuffix(StrEnum):
    """A suffix that overrides the kind in the file name (REC-3, REC-4)."""

    NONE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"
    TMP = ".tmp"
    PART = ".part"


class FileName(NamedTuple):
    """A classified name.

    `offset` is the number in the name: a segment's base offset or the end offset of a snapshot. It
    is None if the name has no number. `epoch` belongs to KRaft snapshots. With several suffixes the
    last one counts.
    """

    name: str
    kind: FileKind
    suffix: FileSuffix = FileSuffix.NONE
    offset: int | None = None
    epoch: int | None = None

    @property
    def has_padded_offset(self) -> bool:
        """Return whether the number has exactly 20 digits before the `.`, as a broker writes it."""
        return self.offset is not None and self.name.split(".", 1)[0] == f"{self.offset:020d}"


_FIXED_NAMES = {
    LEADER_EPOCHS_NAME: FileKind.LEADER_EPOCHS,
    PARTITION_METADATA_NAME: FileKind.PARTITION_METADATA,
    META_PROPERTIES_NAME: FileKind.META_PROPERTIES,
    QUORUM_STATE_NAME: FileKind.QUORUM_STATE,
    CLEAN_SHUTDOWN_NAME: FileKind.CLEAN_SHUTDOWN,
    LOCK_FILE_NAME: FileKind.LOCK,
    RECOVERY_POINT_NAME: FileKind.OFFSET_CHECKPOINT,
    LOG_START_NAME: FileKind.OFFSET_CHECKPOINT,
    HIGH_WATERMARK_NAME: FileKind.OFFSET_CHECKPOINT,
    CLEANER_NAME: FileKind.OFFSET_CHECKPOINT,
}


_NUMBERED_KINDS = {
    ".log": FileKind.LOG,
    ".index": FileKind.INDEX,
    ".timeindex": FileKind.TIMEINDEX,
    ".txnindex": FileKind.TXNINDEX,
    ".snapshot": FileKind.SNAPSHOT,
    ".checkpoint": FileKind.CHECKPOINT,
}


_SEGMENT_ENDS = tuple(end for end in _NUMBERED_KINDS if end != ".checkpoint")


_SUFFIXES = {str(each): each for each in FileSuffix if each}


# Remote index files are <offset>_<uuid>.index: the number ends at the underscore.
_LEADING_OFFSET = re.compile(r"([0-9]{1,20})(?=[._])")


KEPT_NAMES = 4096
_KRAFT_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})(?=[.-])")


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it.

    The paths are compared as they are given.
    """
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def is_clean_marker(path: str) -> bool:
    """Return whether a path is a log directory's clean-shutdown marker."""
    return path.rpartition("/")[2] == CLEAN_SHUTDOWN_NAME


@lru_cache(KEPT_NAMES)
def classify(name: str) -> FileName:
    """Return the kind of a file from its name (without directories). Never fails.

    The kind of an unknown name is UNKNOWN. The result is cached, because thousands of partitions
    have files of the same few names.
    """
    stem, suffix = name, FileSuffix.NONE
    while (dot := stem.rfind(".")) > 0 and (found := _SUFFIXES.get(stem[dot:])) is not None:
        suffix = suffix or found
        stem = stem[:dot]
    kind = _FIXED_NAMES.get(stem)
    if kind is not None:
        return FileName(name, kind, suffix)
    kind = _NUMBERED_KINDS.get(stem[stem.rfind(".") :], FileKind.UNKNOWN) if "." in stem else None
    if kind is None or kind is FileKind.UNKNOWN:
        return FileName(name, FileKind.UNKNOWN, suffix)
    if kind is FileKind.CHECKPOINT:
        match = _KRAFT_SNAPSHOT.match(stem)
        if match is None:
            return FileName(name, kind, suffix)
        return FileName(
            name=name,
            kind=kind,
            suffix=suffix,
            offset=_bounded(match[1], MAX_OFFSET),
            epoch=int(match[2]),
        )
    match = _LEADING_OFFSET.match(stem)
    offset = None if match is None else _bounded(match[1], MAX_OFFSET)
    return FileName(name=name, kind=kind, suffix=suffix, offset=offset)


# The syntax of Java's Long.parseLong, for ASCII names.
_JAVA_LONG = re.compile(r"[+-]?[0-9]+")
_SNAPSHOT_ENDS = (".checkpoint", ".checkpoint.part", ".checkpoint.deleted")


def keeps_from_loading(name: str, *, is_metadata: bool = False) -> bool:
    """Return whether a file of this name in a partition directory keeps a broker from starting.

    For each name that ends like a file of a segment, the broker parses the text before the first
    dot as a number. It fails if that text is no number (LogFileUtils.offsetFromFileName, as
    LogLoader and ProducerStateManager call it). In the metadata log it parses names of snapshots by
    fixed positions (Snapshots.parse). It deletes `.deleted` files without parsing their names.
    """
    if is_metadata and name.endswith(_SNAPSHOT_ENDS):
        return _KRAFT_SNAPSHOT.match(name) is None
    if not name.endswith((*_SEGMENT_ENDS, FileSuffix.CLEANED, FileSuffix.SWAP)):
        return False
    number = name.partition(".")[0]
    return _JAVA_LONG.fullmatch(number) is None or not -MAX_OFFSET - 1 <= int(number) <= MAX_OFFSET


def _bounded(digits: str, maximum: int) -> int | None:
    number = int(digits)
    return number if number <= maximum else None


class TopicPartition(NamedTuple):
    """Topic and partition number, the key of the offset checkpoints."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class DirState(StrEnum):
    """The meaning of the suffix of a partition directory."""

    LIVE = "live"
    FUTURE = "future"
    DELETE = "delete"
    STRAY = "stray"


# A broker has only to delete these.
SET_ASIDE = frozenset({DirState.DELETE, DirState.STRAY})


class PartitionName(NamedTuple):
    """A parsed directory name."""

    topic: str
    partition: int
    state: DirState
    unique_id: str = ""  # 32 hexadecimal digits, except in a live name
    topic_may_be_cut: bool = False  # `topic` may be truncated


# As LocalLog: a whole name with one of the suffixes must have this shape.
_SUFFIXED_DIR = re.compile(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)", re.ASCII)


_PARTITION_NUMBER = re.compile(r"\+?[0-9]{1,20}")


@lru_cache(KEPT_NAMES)
def parse_partition_name(name: str) -> PartitionName | None:
    """Split a directory's name into topic and partition as the broker does, or return None.

    The suffix begins at the last `.`, and the partition number after the last `-`. Topics may
    contain both. Source: LocalLog.parseTopicPartitionName.
    """
    state, unique_id, live_name = DirState.LIVE, "", name
    if name.endswith(("-delete", "-future", "-stray")):
        if _SUFFIXED_DIR.fullmatch(name) is None:
            return None
        live_name, _, tail = name.rpartition(".")
        unique_id, _, word = tail.rpartition("-")
        state = DirState(word)
    topic, dash, digits = live_name.rpartition("-")
    if not (dash and topic) or _PARTITION_NUMBER.fullmatch(digits) is None:
        return None
    partition = int(digits)
    if partition > INT32_MAX:
        return None
    may_be_cut = state in SET_ASIDE and len(name) >= MAX_NAME_CHARS
    return PartitionName(
        topic=topic,
        partition=partition,
        state=state,
        unique_id=unique_id,
        topic_may_be_cut=may_be_cut,
    )
