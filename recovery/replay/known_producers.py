"""Which producer ids the partitions of a log dir know, and until when (PROD-10).

What counts is the state that a broker would recover at its next start
(`recovery.replay.recover_state`). Directories that a broker has set aside count, too: they may come
back. What cannot be read, or only up to a bad place, is named: of it nothing can be said.

`snapshot_ids` is the quick answer: what the snapshots of a log dir have. It reads no log; each
partition that was closed, or whose segment was rolled, has a snapshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.replay.recover_state import recover_state
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, FormatError
from storage.file_names import METADATA_TOPIC, PRODUCER_IDS_TOPIC, DirState, FileKind, classify
from storage.formats.producer_snapshot import entries_despite_crc
from storage.kernels.protocol import VerdictKind
from storage.producers.producer_state import ProducerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.replay.snapshots import Clock
    from storage.dirs.log_dir import LogDir, PartitionDir
    from storage.formats.producer_snapshot import ProducerEntry

# What a crash leaves behind the last batch: a start cuts it off.
_NORMAL = {VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED}


class KnownState(NamedTuple):
    """What a partition knows.

    Attributes:
        directory: the partition.
        entries: of its producer state; some may have expired, until the broker's next check.
        unknown: why there may be more; "": there are none.
    """

    directory: PartitionDir
    entries: list[ProducerEntry]
    unknown: str = ""

    def entry_of(self, producer_id: int) -> ProducerEntry | None:
        """Return what is known of an id."""
        return next((each for each in self.entries if each.producer_id == producer_id), None)

    def live_entry_of(self, producer_id: int, clock: Clock) -> ProducerEntry | None:
        """Return what is known of an id and has not expired."""
        found = self.entry_of(producer_id)
        if found is None:
            return None
        state = ProducerState.from_entry(found)
        return None if state.is_expired(clock.now_ms, clock.expiration_ms) else found


def known_state(directory: PartitionDir, log_dir: LogDir, clock: Clock) -> KnownState:
    """Read the producer state of one partition."""
    try:
        found = recover_state(Partition(directory, log_dir), clock)
    except EoctlError as error:
        return KnownState(directory, [], str(error))
    for path, verdict in found.damage.items():
        if verdict.kind not in _NORMAL:
            where = f"{path}: {verdict.kind} at position {verdict.start_pos}"
            return KnownState(directory, found.entries, f"{where}: {verdict.reason}")
    return KnownState(directory, found.entries, "; ".join(found.problems))


def known_states(log_dir: LogDir, clock: Clock) -> Iterator[KnownState]:
    """Read the producer states of all partitions that can have one."""
    for each in log_dir.partitions:
        is_ours = each.name.topic in {METADATA_TOPIC, PRODUCER_IDS_TOPIC}
        if not is_ours and each.name.state is not DirState.DELETE:
            yield known_state(each, log_dir, clock)


class SnapshotIds(NamedTuple):
    """What snapshots have.

    Attributes:
        places: the producers in them, and the paths of the partitions that have each.
        unknown: those that could not be read, and why.
    """

    places: dict[int, set[str]]
    unknown: tuple[str, ...]


def snapshot_ids(log_dirs: Iterable[LogDir], first_id: int = 0) -> SnapshotIds:
    """Read all snapshots of all partitions, also of those that were set aside.

    Whatever can be taken for an entry counts, of damaged files and of those that are to be deleted
    too: who asks wants an id that nobody has.

    Args:
        log_dirs: the log dirs.
        first_id: lower ids do not matter.
    """
    places: dict[int, set[str]] = {}
    unknown: list[str] = []
    for partition in (each for log_dir in log_dirs for each in log_dir.partitions):
        if partition.name.topic == METADATA_TOPIC:
            continue
        try:
            paths = sorted(Path(partition.path).iterdir())
        except OSError as error:
            unknown.append(str(AccessError(error, partition.path)))
            continue
        for path in paths:
            if classify(path.name).kind is not FileKind.SNAPSHOT:
                continue
            try:
                for each in entries_despite_crc(path.read_bytes()):
                    if each.producer_id >= first_id:
                        places.setdefault(each.producer_id, set()).add(partition.path)
            except FileNotFoundError:
                continue  # a broker at work
            except OSError as error:
                unknown.append(str(AccessError(error, str(path))))
            except FormatError as error:
                unknown.append(f"{path}: {error}")
    return SnapshotIds(places, tuple(unknown))
