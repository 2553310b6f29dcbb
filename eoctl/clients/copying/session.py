"""The session of a copy: its source and destination, and anchors that locate its position.

An anchor belongs to a moment: the source was copied up to `source_offset`, and the destination's
log ended at `end_offset`. All batches that the producer `producer_id` sends in `producer_epoch`
from `sequence` on are the next batches of the source. An anchor is durable before the first of
these batches. The file never decides what the destination contains. Its log decides (`resume`).

Each run has its own producer epoch, from its first batch on. The file is outside of every log dir,
and is replaced as a whole.
"""

from __future__ import annotations

import hashlib
import os
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.identity import COPY_IDS, SessionFormat, derived_id
from recovery.changes.journals.backups import default_place
from storage.dirs.discovery import require_outside_log_dirs
from storage.dirs.state_file import StateSchema
from storage.errors import AccessError, RefusedError
from storage.files import fsio
from storage.limits import INT64_MAX
from storage.producers.producer_state import NO_EPOCH, AppendError

if TYPE_CHECKING:
    from collections.abc import Container

    from eoctl.clients.partitions.identity import OwnIds
    from recovery.changes.append_journal import AppendJournal
    from storage.dirs.partition import Partition
    from storage.files.fsio import FileSystem

MAX_ANCHORS = 32  # the first, which always allows a proof, and the latest
PLACE_NAME = "copies"
NAME_CHARS = 200  # of the partition's name in the name of a file
_EARLIER_IDS = range(3 << 61, INT64_MAX + 1)
NEXT_STEP = "name another --session, or give the arguments that this session was begun with"


class PartitionOf(NamedTuple):
    """A partition, independent of its directory. An unknown id is None."""

    cluster_id: str | None
    topic_id: str | None
    topic: str
    partition: int

    @classmethod
    def of(cls, partition: Partition) -> PartitionOf:
        """Return the partition of a directory."""
        log_dir = partition.log_dir
        meta = None if log_dir is None else log_dir.meta
        cluster_id = None if meta is None else meta.cluster_id
        return cls(cluster_id, partition.topic_id(), partition.topic, partition.partition)

    def is_other(self, found: PartitionOf) -> bool:
        """Return whether two partitions are known to be different."""
        return any(
            mine != theirs and None not in (mine, theirs)
            for mine, theirs in zip(self, found, strict=True)
        )

    def __str__(self) -> str:
        ids = f"topic id {self.topic_id or 'unknown'}, cluster {self.cluster_id or 'unknown'}"
        return f"{self.topic}-{self.partition} ({ids})"


class LastBatch(NamedTuple):
    """The last batch that was copied.

    Attributes:
        source_offset: its last offset in the source.
        source_digest: of its records (`batch_reader.records_digest`).
        offset: its last offset in the destination.
        producer_id, producer_epoch, sequence: of its last record there.
    """

    source_offset: int
    source_digest: int
    offset: int
    producer_id: int
    producer_epoch: int
    sequence: int


class Anchor(NamedTuple):
    """An anchor, see above. `last` is None before the first batch of the session."""

    source_offset: int
    end_offset: int
    producer_id: int
    producer_epoch: int = NO_EPOCH
    sequence: int = 0
    last: LastBatch | None = None


class CopySession(NamedTuple):
    """The content of the file.

    Attributes:
        source, destination: the partitions.
        isolation: isolation level of the copy.
        start_offset: first offset of the copy in the source.
        anchors: oldest first.
        is_clean: the last run has ended, and the producer has no batch after the last anchor.
    """

    source: PartitionOf
    destination: PartitionOf
    isolation: str
    start_offset: int
    anchors: tuple[Anchor, ...]
    is_clean: bool = False

    @property
    def last_anchor(self) -> Anchor:
        """The latest anchor."""
        return self.anchors[-1]

    def with_anchor(self, anchor: Anchor, *, is_clean: bool = False) -> CopySession:
        """Return the session with one more anchor, and without some older anchors."""
        anchors = (*self.anchors, anchor)
        if len(anchors) > MAX_ANCHORS:
            anchors = (anchors[0], *anchors[-MAX_ANCHORS + 1 :])
        return self._replace(anchors=anchors, is_clean=is_clean)


SCHEMA = StateSchema("eoctl copy session", 1, (CopySession,))
_FILE: SessionFormat[CopySession] = SessionFormat(SCHEMA, "the session of a copy", NEXT_STEP)


def default_path(log_dir_path: str, name: str, source: PartitionOf) -> str:
    """Return the default path of the session of a copy into a partition of a log dir."""
    digest = hashlib.sha256(repr(tuple(source)).encode()).hexdigest()[:16]
    place = Path(default_place(log_dir_path), PLACE_NAME)
    return str(place / f"{name[:NAME_CHARS]}.from-{digest}.session")


def own_id(
    source: PartitionOf,
    destination: PartitionOf,
    known: Container[int],
    own_ids: OwnIds,
    path: str,
) -> int:
    """Return the producer id of a copy, which no broker hands out.

    It is derived from source and destination, so that a lost session can be found again in the log.

    Args:
        source: of the copy.
        destination: of the copy.
        known: ids that the destination knows. An earlier release took an id above 2^53, and a
            destination that knows that id continues with it.
        own_ids: of the log dir of the destination.
        path: of the destination.
    """
    of = (tuple(source), tuple(destination))
    earlier = derived_id(of, _EARLIER_IDS)
    return earlier if earlier in known else own_ids.id_of_copy(of, COPY_IDS, known, path)


class CopySessionKeeper:
    """The session at a path.

    Args:
        journal: of the run, which keeps the old file. None: nothing is written, as in a plan.
        path: of the file.
        like: missing directories of the path get owner, group and mode of this directory.

    Attributes:
        session: None if there is none yet.

    Raises:
        RefusedError: the file is in a log dir, or is not a session of a copy.
        AccessError: it cannot be read.
    """

    def __init__(self, journal: AppendJournal | None, path: str, like: str) -> None:
        require_outside_log_dirs(path, "name a file elsewhere")
        self.path = path
        self._journal = journal
        self._like = like
        self.session = _load(path)
        self._seen = _state(path)

    @property
    def begun(self) -> CopySession:
        """The session that was found or begun."""
        if self.session is None:
            raise ValueError("the session has not begun")
        return self.session

    def save(self, session: CopySession) -> None:
        """Replace the saved session, durably.

        Raises:
            AppendError: another copier has taken over.
            RefusedError, AccessError: it cannot be written.
        """
        if self._journal is not None:
            self.require_mine()
            self._make_place(self._journal.fs)
            self._journal.keep_session(self.path)
            _FILE.save(self._journal.fs, self.path, session)
            self._seen = _state(self.path)
        self.session = session

    def require_mine(self) -> None:
        """Require that no other copier has continued the session.

        Raises:
            AppendError: INVALID_PRODUCER_EPOCH, as the log would answer the next batch.
            RefusedError: the file was removed or replaced.
        """
        if self._journal is None or _state(self.path) == self._seen:
            return
        found, mine = _load(self.path), self.session
        if found is not None and mine is not None:
            theirs, ours = found.last_anchor, mine.last_anchor
            if theirs.producer_epoch > ours.producer_epoch:
                raise fenced(self.path, theirs.producer_id, ours.producer_epoch, theirs)
        raise RefusedError(f"{self.path}: somebody else has removed or replaced it")

    def _make_place(self, fs: FileSystem) -> None:
        missing = []
        place = Path(self.path).absolute().parent
        while not place.is_dir():
            missing.append(place)
            place = place.parent
        for each in reversed(missing):
            fsio.make_dir_like(fs, each, self._like)
            fsio.sync_dir(fs, each.parent)


def fenced(path: str, producer_id: int, epoch: int, found: Anchor) -> AppendError:
    """Return a broker's answer to a copier that another copier has fenced."""
    error = AppendError(
        "INVALID_PRODUCER_EPOCH",
        f"{path}: epoch {epoch} of producer {producer_id} is below {found.producer_epoch}. Another"
        " copier has gone on with the session",
        producer_id=producer_id,
        offset=found.end_offset,
    )
    error.next_step = "go on with the session file of the other copier"
    return error


def read_session(path: str) -> CopySession:
    """Read the session at a path.

    Raises:
        AccessError: it does not exist, or cannot be read.
        RefusedError: it is not a session of a copy.
    """
    found = _load(path)
    if found is None:
        raise AccessError(FileNotFoundError(ENOENT, "No such file"), path)
    return found


def sessions_of(log_dir_path: str) -> list[str]:
    """Return the paths of sessions of copies into a log dir that are in the default place."""
    place = Path(default_place(log_dir_path), PLACE_NAME)
    try:
        return sorted(str(each) for each in place.glob("*.session"))
    except OSError as exc:
        raise AccessError(exc, str(place)) from exc


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a block
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _load(path: str) -> CopySession | None:
    return _FILE.load(path, _check)


def _check(session: CopySession) -> None:
    """Require that all numbers are in their range, because a file may contain any number."""
    if not session.anchors:
        raise ValueError("there is no anchor")
    numbers = [session.start_offset]
    for each in session.anchors:
        numbers += [each.source_offset, each.end_offset, each.producer_id]
        numbers += [each.producer_epoch, each.sequence, *(each.last or ())]
    if not all(-1 <= each <= INT64_MAX for each in numbers):
        raise ValueError("a number is out of range")
    for each in session.anchors:
        last = each.last
        if last and not (last.source_offset < each.source_offset and last.offset < each.end_offset):
            raise ValueError("an anchor is not behind its last batch")
