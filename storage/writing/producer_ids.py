"""Producer ids of our own: handed out in blocks, and leased to applications, by any process.

The sequence begins at 2^48, where no controller ever comes that hands out ids of its cluster, and
ends at 2^52. How far it has come, the leases, and ids that may be leased again are in the log of
`__eoctl_producer_ids-0` (`storage.writing.keyed_log`); nothing is answered before it is durable
there.

A block is taken from the sequence before an id of it is given out; what its owner does not use is
never given out. Ids of leases come one by one from a block that all processes share. A block begins
above every id of our range that is in use, so that a lost log does not give ids out twice.

    lease state   how it comes                          the id
    held          acquire, renew                        its holder's, with that generation as epoch
    lapsed        its time has run out                  still that of the app id
    released      release                               still that of the app id
    free          free, once nothing knows of the id    anybody's, from the next generation on

Each acquire has a generation of its own: the one before, or a higher epoch that a log knows, and 1.
An earlier holder is fenced: by the log once the new one has written (INVALID_PRODUCER_EPOCH), and
here at once. Behind generation 32766 comes another id, as with a transaction coordinator.

    PRODUCER_FENCED              renew, release: another one has acquired it since
    INVALID_PRODUCER_ID_MAPPING  renew, release: there is no such lease; renew: it has lapsed
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from storage.dirs.log_config import LogConfig
from storage.errors import EXIT_REFUSED, EoctlError, RefusedError
from storage.file_names import PRODUCER_IDS_TOPIC
from storage.files.broker_lock import take_in_turn
from storage.formats.producer_id_record import (
    END_ID,
    END_OF_TIME_MS,
    FIRST_ID,
    IDS_KEY,
    MAX_GENERATION,
    Entry,
    Forgotten,
    FreeId,
    Ids,
    Lease,
    key_of,
)
from storage.producers.producer_state import NO_EPOCH
from storage.writing.keyed_log import KeyedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from storage.files.fsio import FileSystem

DEFAULT_BLOCK_SIZE = 1000  # of a controller, since Kafka 2.8
DIRECTORY_NAME = f"{PRODUCER_IDS_TOPIC}-0"


class LeaseError(EoctlError):
    """What a coordinator answers one who is not, or not any more, what it says.

    `kafka_error` is the name of its error code.
    """

    exit_status = EXIT_REFUSED

    def __init__(self, kafka_error: str, message: str, *, next_step: str = "") -> None:
        super().__init__(f"{kafka_error}: {message}", next_step=next_step)
        self.kafka_error = kafka_error


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class ProducerIds:
    """The producer ids of one log dir.

    Args:
        log: what holds.
        lock: entered around each change.
        block_size: ids taken from the sequence at once.
        now_ms: the clock that leases go by.
        ids_in_use: asked for ids that somebody knows, whenever a block is taken.
    """

    def __init__(
        self,
        log: KeyedLog,
        lock: Callable[[], AbstractContextManager[object]],
        block_size: int,
        now_ms: Callable[[], int],
        ids_in_use: Callable[[], Iterable[int]],
    ) -> None:
        if not 0 < block_size < END_ID - FIRST_ID:
            raise ValueError(f"block size {block_size}")
        self._log = log
        self._lock = lock
        self._block_size = block_size
        self._now_ms = now_ms
        self._ids_in_use = ids_in_use
        self._own = range(0)  # of a block, what was not given out yet

    @classmethod
    def at(
        cls,
        log_dir: str | Path,
        fs: FileSystem | None,
        *,
        lock_wait_ms: int | None = None,
        block_size: int = DEFAULT_BLOCK_SIZE,
        now_ms: Callable[[], int] = _wall_ms,
        ids_in_use: Callable[[], Iterable[int]] = tuple,
        topic_id: bytes | None = None,
        config: LogConfig | None = None,
    ) -> Self:
        """Return the producer ids of a log dir; nothing is read before the first call.

        Args:
            log_dir: where the partition is, or will be.
            fs: what writes; None: for looking only, without any lock.
            lock_wait_ms: each change takes the lock of the log dir for itself and waits so long for
                it; None: the caller holds it.
            block_size: ids taken from the sequence at once.
            now_ms: the clock.
            ids_in_use: gives ids that producer states of the log dir know.
            topic_id: of the topic, for a directory that is not there yet.
            config: the settings of the topic.
        """
        lock: Callable[[], AbstractContextManager[object]] = nullcontext
        if lock_wait_ms is not None:
            lock = partial(take_in_turn, [str(log_dir)], lock_wait_ms, fs=fs)
        directory = str(Path(log_dir, DIRECTORY_NAME))
        log = KeyedLog(directory, fs, config or LogConfig(), topic_id, now_ms)
        return cls(log, lock, block_size, now_ms, ids_in_use)

    def close(self) -> None:
        """Let go of the files. Ids that were not given out are gone."""
        self._own = range(0)
        self._log.close()

    # -- looking

    def refresh(self) -> None:
        """Read what other processes have written. Raises RefusedError, AccessError."""
        self._log.refresh()

    def sync(self) -> None:
        """Make durable what the last refresh has read. Raises AccessError."""
        self._log.sync()

    @property
    def cut_bytes(self) -> int:
        """What crashes left at the end of the log, and was cut off."""
        return self._log.cut_bytes

    @property
    def ids(self) -> Ids:
        """How far the sequence has come, as of the last refresh."""
        found = self._log.entries.get(IDS_KEY)
        return found if isinstance(found, Ids) else Ids()

    def lease(self, app_id: str) -> Lease | None:
        """Return the lease of an app id, held or not, as of the last refresh."""
        found = self._log.entries.get(("lease", app_id))
        return found if isinstance(found, Lease) else None

    def leases(self) -> list[Lease]:
        """Return all leases by app id, as of the last refresh."""
        found = [each for each in self._log.entries.values() if isinstance(each, Lease)]
        return sorted(found, key=lambda each: each.app_id)

    def free_ids(self) -> list[FreeId]:
        """Return what may be leased again, as of the last refresh."""
        return sorted(each for each in self._log.entries.values() if isinstance(each, FreeId))

    # -- changing

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock():
            self._log.refresh()
            yield

    def next_id(self) -> int:
        """Return an id that nobody was given before, and nobody else will be.

        Raises:
            RefusedError: there are none left, the log is damaged, or somebody holds the lock.
            AccessError: it cannot be read or written.
        """
        if not self._own:
            with self._changing():
                block, ids = self._take_block(self.ids)
                self._log.put([ids])
                self._own = block
        given, self._own = self._own[0], self._own[1:]
        return given

    def _take_block(self, ids: Ids) -> tuple[range, Ids]:
        in_use = (each for each in self._ids_in_use() if ids.next_block_id <= each < END_ID)
        start = max(in_use, default=ids.next_block_id - 1) + 1
        end = start + self._block_size
        if end > END_ID:
            raise RefusedError(f"{self._log.directory}: all producer ids below {END_ID} are given")
        return range(start, end), ids._replace(next_block_id=end)

    def acquire(
        self,
        app_id: str,
        expiry_ms: int,
        *,
        partitions: Sequence[tuple[str, int]] = (),
        last_epoch: Callable[[int], int] = lambda _: NO_EPOCH,
    ) -> Lease:
        """Lease the id of an app id to the caller; who had it is fenced.

        Args:
            app_id: whose id it is.
            expiry_ms: after which the lease lapses.
            partitions: what it is for; kept with the lease.
            last_epoch: the highest epoch that a log knows of an id, -1 if it knows none.

        Raises:
            RefusedError, AccessError, AppendError: as `next_id`; there is no new lease.
        """
        with self._changing():
            before = self.lease(app_id)
            free = self.free_ids() if before is None else []
            changes: list[Entry | Forgotten] = []
            generation = MAX_GENERATION + 1
            producer_id = -1
            if before is not None:
                producer_id = before.producer_id
                generation = max(before.generation, last_epoch(producer_id)) + 1
            elif free:
                producer_id = free[0].producer_id
                generation = max(free[0].generation, last_epoch(producer_id)) + 1
                changes.append(Forgotten(key_of(free[0])))
            if generation > MAX_GENERATION:
                producer_id, ids = self._new_lease_id()
                generation = 0
                changes.append(ids)
            lease = Lease(
                app_id=app_id,
                producer_id=producer_id,
                generation=generation,
                expiry_ms=expiry_ms,
                expires_at_ms=self._end_ms(expiry_ms),
                partitions=tuple(partitions),
            )
            self._log.put([*changes, lease])
        return lease

    def _end_ms(self, expiry_ms: int) -> int:
        return min(self._now_ms() + expiry_ms, END_OF_TIME_MS)

    def _new_lease_id(self) -> tuple[int, Ids]:
        ids = self.ids
        if ids.next_lease_id == ids.lease_end_id:
            block, ids = self._take_block(ids)
            ids = ids._replace(next_lease_id=block.start, lease_end_id=block.stop)
        return ids.next_lease_id, ids._replace(next_lease_id=ids.next_lease_id + 1)

    def require_held(self, app_id: str, generation: int | None = None) -> Lease:
        """Return a lease that is held, as of the last refresh.

        Raises:
            LeaseError: there is none, it has lapsed, or another generation has it.
        """
        lease = self._require_current(app_id, generation)
        if not lease.is_held(self._now_ms()):
            what = "was released" if lease.is_released else "has lapsed"
            raise LeaseError(
                "INVALID_PRODUCER_ID_MAPPING",
                f"the lease of {app_id} {what}",
                next_step=f"--app-id {app_id} with eoctl lease-pid acquire gets its id back",
            )
        return lease

    def _require_current(self, app_id: str, generation: int | None) -> Lease:
        lease = self.lease(app_id)
        if lease is None:
            raise LeaseError(
                "INVALID_PRODUCER_ID_MAPPING",
                f"{app_id} has no producer id",
                next_step="eoctl lease-pid acquire",
            )
        if generation is not None and generation != lease.generation:
            since, next_step = "nobody has acquired it yet", "see eoctl lease-pid list"
            if generation < lease.generation:
                since = "another one has acquired it"
                next_step = "stop that producer: its id has another holder"
            raise LeaseError(
                "PRODUCER_FENCED",
                f"generation {generation} of {app_id}: {since}, the last one is {lease.generation}",
                next_step=next_step,
            )
        return lease

    def renew(self, app_id: str, generation: int, expiry_ms: int) -> Lease:
        """Let a lease that is held last longer, or shorter: so long from now on.

        Raises:
            LeaseError: as `require_held`.
            RefusedError, AccessError: as `next_id`; the lease is as it was.
        """
        with self._changing():
            lease = self.require_held(app_id, generation)
            lease = lease._replace(expiry_ms=expiry_ms, expires_at_ms=self._end_ms(expiry_ms))
            self._log.put([lease])
        return lease

    def release(self, app_id: str, generation: int) -> Lease:
        """Give a lease up; a lapsed one too, and once more.

        Raises:
            LeaseError: there is none, or another generation has it.
            RefusedError, AccessError: as `next_id`; the lease is as it was.
        """
        with self._changing():
            lease = self._require_current(app_id, generation)._replace(is_released=True)
            self._log.put([lease])
        return lease

    def free(self, producer_ids: Collection[int]) -> list[Lease]:
        """End leases of ids of which no producer state knows any more; their ids are free.

        An id whose generations are used up is not given out again.

        Returns:
            The leases that were ended; one that is held is not.
        """
        with self._changing():
            now_ms = self._now_ms()
            ended = [
                each
                for each in self.leases()
                if each.producer_id in producer_ids and not each.is_held(now_ms)
            ]
            for each in ended:
                changes: list[Entry | Forgotten] = [Forgotten(key_of(each))]
                if each.generation < MAX_GENERATION:
                    changes.append(FreeId(each.producer_id, each.generation))
                self._log.put(changes)
        return ended
