"""From the PATHs of a command to partitions: log directories, partition directories, their files.

A PATH may be a log directory, a partition directory or a file in either. Symbolic links are
followed. The name `kafka-1` fits both kinds of directory, so the content decides. Files that only
a log directory has come first, then files that only a partition has, then the name.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import LOG_DIR_FILES, LogDir, PartitionDir, read_log_dir
from storage.errors import (
    EXIT_ACCESS,
    AccessError,
    CorruptError,
    FormatError,
    RefusedError,
    UsageError,
)
from storage.file_names import (
    HIGH_WATERMARK_NAME,
    LEADER_EPOCHS_NAME,
    LOCK_FILE_NAME,
    LOG_FILE_KINDS,
    LOG_START_NAME,
    PARTITION_METADATA_NAME,
    DirState,
    FileKind,
    PartitionName,
    classify,
    parse_partition_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from storage.dirs.log_dir import Problem
    from storage.file_names import TopicPartition

UNKNOWN_PARTITION = -1  # of a partition directory that was copied under another name

_PARTITION_KINDS = LOG_FILE_KINDS | {FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE}
_NUMBERED_KINDS = LOG_FILE_KINDS - {FileKind.LEADER_EPOCHS}
# Other programs have a `.lock`, too.
_MARKS = (LOG_DIR_FILES - {LOCK_FILE_NAME}) | {LEADER_EPOCHS_NAME, PARTITION_METADATA_NAME}


# The names listed in the error, to help to detect a missing mount or another program's directory.
SEARCHED = (
    "looked for meta.properties, checkpoints, partition.metadata, segments"
    " (00000000000000000000.log), or directories TOPIC-N with these"
)


class NotKafkaError(UsageError):
    """A directory without a file of Kafka: the wrong directory, or a mount is missing.

    `given`: the named file in it.
    """

    exit_status = EXIT_ACCESS

    def __init__(self, path: str, given: str = "") -> None:
        where = f"{given}: its directory {path} is" if given else f"{path}:"
        super().__init__(
            f"{where} neither a log dir nor a partition: {SEARCHED}",
            next_step="look whether its file system is mounted, and what log.dirs in"
            " server.properties says",
        )


def is_partition_file(name: str) -> bool:
    """Return whether only a partition directory has a file of that name."""
    found = classify(name)
    if found.kind is FileKind.CHECKPOINT:
        return found.epoch is not None  # a snapshot of the metadata
    if found.kind not in _PARTITION_KINDS:
        return False
    # Other programs have a `.log` and an `.index`, too. Kafka's begin with an offset.
    return found.kind not in _NUMBERED_KINDS or found.has_padded_offset


_BOUNDS_NAMES = frozenset({LOG_START_NAME, HIGH_WATERMARK_NAME})


class Selected(NamedTuple):
    """One selected partition directory, with its log directory.

    `log_dir` is None if the parent directory cannot be read or is no log directory. Checkpoints,
    marker and lock are then unknown.
    """

    partition: PartitionDir
    log_dir: LogDir | None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that hide the log start and the high watermark of the partition."""
        found = () if self.log_dir is None else self.log_dir.problems
        return tuple(each for each in found if Path(each.path).name in _BOUNDS_NAMES)

    def log_bytes(self) -> int:
        """The current size of its `.log` files, or 0 if they cannot be listed."""
        try:
            return sum(each.stat().st_size for each in Path(self.partition.path).glob("*.log"))
        except OSError:
            return 0


class Discovery(NamedTuple):
    """The directories behind the PATHs of a command."""

    selected: tuple[Selected, ...]  # each directory once, in the order of the PATHs, sorted within
    log_dirs: tuple[LogDir, ...]  # each once
    problems: tuple[Problem, ...]  # including the problems of the log directories
    whole: tuple[LogDir, ...] = ()  # the log directories that were given as PATHs themselves


def discover(paths: Iterable[str | Path]) -> Discovery:
    """Find the partitions behind the PATHs.

    A PATH that cannot be listed is a recorded problem, unless it is the only PATH.

    Raises:
        AccessError: there is one PATH, and it does not exist or cannot be read.
        NotKafkaError: a PATH is neither a log directory, nor a partition, nor a file in one.
        UsageError: there is no PATH.
    """
    wanted = [os.fspath(each) for each in paths]
    if not wanted:
        raise UsageError("no PATH given", next_step="name a log dir or a partition directory")
    finder = _DirectoryFinder()
    problems: list[Problem] = []
    for path in wanted:
        try:
            finder.add(path)
        except AccessError as exc:
            if len(wanted) == 1:
                raise
            problems.append(exc)
    log_dirs = tuple(finder.log_dirs[key] for key in finder.used)
    for key, log_dir in zip(finder.used, log_dirs, strict=True):
        # Foreign directories beside a partition do not matter if only that partition was given.
        is_whole = key in finder.whole
        problems += (each for each in log_dir.problems if is_whole or not is_foreign(each))
    problems += duplicate_partitions(log_dirs)
    whole = tuple(finder.log_dirs[key] for key in finder.used if key in finder.whole)
    return Discovery(
        selected=tuple(finder.selected.values()),
        log_dirs=log_dirs,
        problems=tuple(problems),
        whole=whole,
    )


def select_partition(path: str | Path) -> Selected:
    """Find the one partition that a PATH leads to.

    Raises:
        UsageError: it leads to no partition, or to several.
        AccessError: it cannot be read.
    """
    found = discover([path]).selected
    if not Path(path).is_dir():
        # A file in a partition leads to that partition. A file beside partitions leads to no
        # partition.
        around = Path(path).absolute().parent.resolve()
        found = tuple(each for each in found if Path(each.partition.path).resolve() == around)
    if len(found) != 1:
        raise UsageError(f"{os.fspath(path)}: {len(found)} partitions there, one is needed")
    return found[0]


class ServerProperties(NamedTuple):
    """The log directories in a broker's configuration, as written there.

    Attributes:
        node_id: node.id, else broker.id. None if neither is a number.
        settings: the other settings of the file, by name.
    """

    log_dirs: tuple[str, ...]
    metadata_log_dir: str  # the first log directory unless set
    node_id: int | None = None
    settings: Mapping[str, str] = MappingProxyType({})

    @property
    def all_dirs(self) -> tuple[str, ...]:
        """Each directory once."""
        return tuple(dict.fromkeys((*self.log_dirs, self.metadata_log_dir)))


_NODE_ID = re.compile(r"[0-9]{1,10}")
DEFAULT_LOG_DIR = "/tmp/kafka-logs"  # noqa: S108 - Kafka's own default


def read_server_properties(path: str | Path) -> ServerProperties:
    """Read log.dirs (else log.dir) and metadata.log.dir from a broker's configuration.

    Relative names are kept, since they depend on the broker's working directory.

    Raises:
        AccessError, CorruptError: the file cannot be read or parsed.
    """
    from storage.formats.meta_properties import parse_meta_properties

    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise AccessError(exc, os.fspath(path)) from exc
    try:
        # The same syntax. Keys that meta.properties does not have are in `other`.
        parsed = parse_meta_properties(data)
    except FormatError as exc:
        raise exc.located(os.fspath(path)) from exc
    settings = dict(parsed.other)
    text = settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_LOG_DIR
    log_dirs = tuple(each.strip() for each in text.split(",") if each.strip())
    if not log_dirs:
        raise CorruptError(
            "no log dir is named", check_id="DIR-3", pos=0, expected="log.dirs", found=text
        ).located(os.fspath(path))
    node_id = settings.get("node.id", "").strip()
    return ServerProperties(
        log_dirs=log_dirs,
        metadata_log_dir=settings.get("metadata.log.dir", "").strip() or log_dirs[0],
        node_id=int(node_id) if _NODE_ID.fullmatch(node_id) else parsed.node_id,
        settings=settings,
    )


def is_in_log_dir(path: str | Path) -> bool:
    """Return whether a path, which need not exist, is or leads into a log directory or a partition.

    They are recognized by files that only Kafka has.
    """
    target = Path(os.path.realpath(path))
    return any((each / name).exists() for each in (target, *target.parents) for name in _MARKS)


def require_outside_log_dirs(
    path: str | Path, next_step: str = "", *, place: str | Path | None = None
) -> None:
    """Refuse to write our files among the files of a broker.

    Args:
        path: of a file or directory, as the user named it.
        next_step: the alternative for the user.
        place: checked instead of the path.

    Raises:
        RefusedError: it is in a log directory.
    """
    if is_in_log_dir(path if place is None else place):
        raise RefusedError(
            f"{path}: lies in a log dir, where only a broker's files belong", next_step=next_step
        )


def is_foreign(problem: Problem) -> bool:
    """Return whether the problem is a directory whose name is no partition's (DIR-1)."""
    return isinstance(problem, CorruptError) and problem.check_id == "DIR-1"


def duplicate_partitions(log_dirs: Iterable[LogDir]) -> list[CorruptError]:
    """Find partitions with two live directories in one node, which refuses to start (DIR-2).

    Log directories with different node ids belong to different nodes. A log directory without
    meta.properties counts as one of the same node as the others.
    """
    seen: dict[TopicPartition, list[tuple[str, int | None]]] = {}
    found = []
    for log_dir in log_dirs:
        node_id = None if log_dir.meta is None else log_dir.meta.node_id
        for each in log_dir.partitions:
            if each.name.state is not DirState.LIVE:
                continue
            earlier = seen.setdefault(each.topic_partition, [])
            for path, other_node_id in earlier:
                if node_id is None or other_node_id is None or node_id == other_node_id:
                    found.append(
                        CorruptError(
                            f"{each.topic_partition} is live in another directory too",
                            check_id="DIR-2",
                            pos=0,
                            expected="one live directory",
                            found=path,
                        ).located(each.path)
                    )
                    break
            earlier.append((each.path, node_id))
    return found


class _Inspections(Enum):
    """The kind of a directory, by its content."""

    LOG_DIR = 1
    PARTITION = 2
    NEITHER = 3


def _inspect(path: str) -> _Inspections:
    has_partition_files = False
    below = []  # directories that may be partitions
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name in LOG_DIR_FILES:
                    return _Inspections.LOG_DIR
                if is_partition_file(entry.name):
                    has_partition_files = True
                elif parse_partition_name(entry.name) is not None and Path(entry.path).is_dir():
                    below.append(entry.path)  # not a link to itself
    except OSError as exc:
        raise AccessError(exc, path) from exc
    if has_partition_files:
        return _Inspections.PARTITION
    if any(map(has_partition_file, below)):
        return _Inspections.LOG_DIR
    absolute = Path(path).absolute()
    # A broker takes any directory of a log directory for a partition, even if it is empty.
    if parse_partition_name(absolute.name) is not None and _has_mark(absolute.parent):
        return _Inspections.PARTITION
    return _Inspections.NEITHER


def has_partition_file(path: str) -> bool:
    """Return whether a directory has a file that only a partition has.

    False if it cannot be listed.
    """
    try:
        with os.scandir(path) as entries:
            return any(is_partition_file(each.name) for each in entries)
    except OSError:
        return False


def _has_mark(path: Path) -> bool:
    """Return whether a directory has a file that only a log directory has."""
    return any((path / name).exists() for name in LOG_DIR_FILES)


def _is_in_one(found: Selected) -> bool:
    return found.log_dir is not None and found.log_dir.is_log_dir


class _DirectoryFinder:
    """A collector that takes each directory once by its real path."""

    def __init__(self) -> None:
        self.log_dirs: dict[str, LogDir] = {}  # by real path, even if it is no log dir
        self.used: dict[str, None] = {}  # keys of the log directories, in order
        self.whole: set[str] = set()  # keys of the log directories given as PATHs
        self.selected: dict[str, Selected] = {}
        self._keys: dict[tuple[int, int], str] = {}  # by device and inode: two mounts are one

    def add(self, path: str) -> None:
        given = ""
        if not Path(path).is_dir():
            given = path
            try:  # a dangling link, or a link to itself, is no file in the directory around it
                Path(path).stat()
            except OSError as exc:
                raise AccessError(exc, path) from exc
            path = os.path.dirname(path) or "."  # noqa: PTH120 - keep the words of the user
        inspections = _inspect(path)
        if inspections is _Inspections.PARTITION:
            self._add_partition(path)
        elif inspections is _Inspections.LOG_DIR:
            log_dir, key = self._read(path)
            self.used.setdefault(key)
            self.whole.add(key)
            for each in log_dir.partitions:
                # Without the files of a log directory around it, a name alone proves nothing.
                if log_dir.is_log_dir or has_partition_file(each.path):
                    self._select(each, log_dir)
        else:
            raise NotKafkaError(path, given)

    def _add_partition(self, path: str) -> None:
        absolute = Path(path).absolute()
        if path.endswith(".."):
            absolute = Path(os.path.realpath(absolute))
        name = parse_partition_name(absolute.name)
        if name is None:
            name = PartitionName(absolute.name, UNKNOWN_PARTITION, DirState.LIVE)
        given = Path(path)
        parent = given.parent if given.name not in {"", ".."} else absolute.parent
        log_dir = self._log_dir(str(parent))
        if log_dir is None and (real := Path(os.path.realpath(absolute))) != absolute:
            # A link from elsewhere leads to it. The log directory in which its broker has it
            # counts.
            log_dir = self._log_dir(str(real.parent))
            if log_dir is not None:
                path, name = str(real), parse_partition_name(real.name) or name
        self._select(PartitionDir(path, name), log_dir)

    def _log_dir(self, path: str) -> LogDir | None:
        """Return the directory around a partition, if it is a readable log directory."""
        try:
            around, key = self._read(path)
        except AccessError:
            return None  # only the partition was given, so its surroundings are unknown
        if not around.is_log_dir:
            return None
        self.used.setdefault(key)
        return around

    def _read(self, path: str) -> tuple[LogDir, str]:
        key = self._key(path)
        if key not in self.log_dirs:
            self.log_dirs[key] = read_log_dir(path)
        return self.log_dirs[key], key

    def _select(self, partition: PartitionDir, log_dir: LogDir | None) -> None:
        found = Selected(partition, log_dir)
        key = self._key(partition.path)
        earlier = self.selected.setdefault(key, found)
        if _is_in_one(found) and not _is_in_one(earlier):
            self.selected[key] = found  # its log dir has its bounds, and its lock

    def _key(self, path: str) -> str:
        """Return one name for a directory, for every path or mount that leads to it."""
        real = os.path.realpath(path)
        try:
            found = Path(real).stat()
        except OSError:
            return real
        return self._keys.setdefault((found.st_dev, found.st_ino), real)
