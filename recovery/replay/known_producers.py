"""Which producer ids the partitions of a log dir know, and until when (PROD-10).

What counts is the state that a broker would recover at its next start
(`recovery.replay.recover_state`). Directories that a broker has set aside count, too: they may come
back. What cannot be read, or only up to a bad place, is named: of it nothing can be said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.replay.recover_state import recover_state
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import METADATA_TOPIC, PRODUCER_IDS_TOPIC, DirState
from storage.kernels.protocol import VerdictKind
from storage.producers.producer_state import ProducerState

if TYPE_CHECKING:
    from collections.abc import Iterator

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
