"""The identity of a producer: id, epoch, sequence numbers, and its progress in the log.

Without transactions, and with transaction version 0 or 1, id and epoch stay the same. The sequence
numbers of a partition continue from batch to batch. With version 2 each transaction has its own
epoch, one above the epoch before it, and sequence numbers begin at 0 again (TXN-7). After epoch
32766 the next producer id follows, with epoch 0.

A place among the records that a producer sends to one partition is (transaction, count). The count
is the number of records before it, with version 2 in that transaction, else since the beginning.
Places are compared with the log, which alone shows what was written.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from recovery.replay.recover_state import snapshot_ids
from storage.checksum import crc32c
from storage.dirs.log_dir import read_log_dir
from storage.dirs.state_file import read_as
from storage.errors import AccessError, RefusedError, UsageError
from storage.files import fsio
from storage.formats.producer_id_record import END_ID as LEASED_END_ID
from storage.formats.producer_id_record import FIRST_ID
from storage.formats.record_batch import MAX_SEQUENCE, NO_PRODUCER_ID, increment_sequence
from storage.producers.producer_state import MAX_PRODUCER_EPOCH
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from storage.dirs.state_file import StateSchema
    from storage.files.fsio import FileSystem
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.producers.producer_state import ProducerStateManager


# -- the file of a session: one value in msgpack with a checksum, replaced as a whole and durably


Session = TypeVar("Session")

MAX_SESSION_BYTES = 16 << 20  # a session of 100,000 partitions has a tenth of it


class SessionFormat(Generic[Session]):
    """A kind of session.

    Args:
        schema: the name of the kind in the file, and the type of a session, a named tuple.
        what: for errors, such as "the session of a producer".
        next_step: after an error.
    """

    def __init__(self, schema: StateSchema, what: str, next_step: str) -> None:
        self._schema = schema
        self._kind: type[Session] = schema.holds[0]
        self._what = what
        self._next_step = next_step

    def load(self, path: str, check: Callable[[Session], None]) -> Session | None:
        """Read a session, None without a file. `check` raises ValueError for an invalid session.

        Raises:
            AccessError: it cannot be read.
            RefusedError: it is not such a session.
        """
        import msgpack

        try:
            found_bytes = Path(path).stat().st_size
            if not Path(path).is_file() or found_bytes > MAX_SESSION_BYTES:
                raise RefusedError(
                    f"{path}: not {self._what}: no file, or one of {found_bytes} bytes",
                    next_step=self._next_step,
                )
            data = Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise AccessError(exc, path) from exc
        try:
            body, checksum = msgpack.unpackb(data)
            if crc32c(body) != checksum:
                raise ValueError("its checksum is wrong")  # noqa: TRY301
            found = msgpack.unpackb(body, use_list=False)
            kind, version = found.pop("format"), found.pop("version")
            if kind != self._schema.name:
                raise ValueError(f"format {kind!r}")  # noqa: TRY301
            if version != self._schema.version:
                raise ValueError(  # noqa: TRY301
                    f"of version {version!r}, this program knows {self._schema.version}"
                )
            session = read_as(self._kind, found)
            check(session)
        except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as exc:
            raise RefusedError(
                f"{path}: not {self._what}, or damaged: {exc}", next_step=self._next_step
            ) from exc
        return session

    def save(self, fs: FileSystem, path: str, session: Session) -> None:
        """Replace the file durably. Raises AccessError."""
        import msgpack

        fields = session._asdict()  # type: ignore[attr-defined]
        head = {"format": self._schema.name, "version": self._schema.version}
        body = msgpack.packb({**head, **fields})
        fsio.replace_file(fs, path, msgpack.packb([body, crc32c(body)]))


# -- identity


# Brokers hand out producer ids from 0 up, in blocks. If we used an id of theirs, a client could get
# the same id later. Its first batches would then count as duplicates of ours and be dropped. Our
# ids begin where leased ids end. All are below 2^53, because programs that read JSON numbers as
# floats (jq, JavaScript) lose digits above it.
OWN_IDS = range(LEASED_END_ID, LEASED_END_ID + 2**50)  # of a run without a session
SESSION_IDS = range(OWN_IDS.stop, OWN_IDS.stop + 2**50)
COPY_IDS = range(SESSION_IDS.stop, 2**53)

SEQUENCES_COUNT = MAX_SEQUENCE + 1
EPOCHS_COUNT = MAX_PRODUCER_EPOCH  # epochs of data, as the last epoch is for a marker


def derived_ids(of: object, ids: range) -> Iterator[int]:
    """Yield all of these ids, starting at an id derived from a digest of the value's `repr`."""
    digest = hashlib.sha256(repr(of).encode()).digest()
    place = int.from_bytes(digest[:8], "big") * len(ids) >> 64
    yield from ids[place:]
    yield from ids[:place]


def derived_id(of: object, ids: range) -> int:
    """Return the first id of `derived_ids`."""
    return next(derived_ids(of, ids))


def run_ids(names: Iterable[str], end_offset: int) -> Iterator[int]:
    """Yield ids for a run without a session. A plan and its run get the same ids.

    Args:
        names: of the partitions that are written to.
        end_offset: the highest log end offset of these partitions.
    """
    return derived_ids((sorted(names), end_offset), OWN_IDS)


def choose_identity(
    producers: ProducerStateManager,
    producer_id: int,
    *,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
) -> ProducerIdentity:
    """Complete the user's options. A known producer continues at its state in the log.

    Raises:
        UsageError: an epoch or a sequence number is given without a producer id.
    """
    if producer_id == NO_PRODUCER_ID:
        if producer_epoch is not None or base_sequence is not None:
            raise UsageError("without a producer id there is neither epoch nor sequence number")
        return ProducerIdentity()
    state = producers.producers.get(producer_id)
    if producer_epoch is None:
        producer_epoch = 0 if state is None else max(state.producer_epoch, 0)
    if base_sequence is None:
        base_sequence = 0
        if state is not None and state.producer_epoch == producer_epoch:
            last = state.last_sequence
            base_sequence = 0 if last == MAX_SEQUENCE else last + 1
    return ProducerIdentity(producer_id, producer_epoch, base_sequence)


def random_producer_ids() -> Iterator[int]:
    """Yield ids for a session, or for a transactional id.

    They are random, because they must also be new in a log that was truncated or created again.
    """
    while True:
        yield secrets.choice(SESSION_IDS)


class LogPlace(NamedTuple):
    """The progress of a producer in the log of one partition.

    Attributes:
        transaction, records: the first place that the log does not have.
        is_open: a transaction of the producer has no marker there.
    """

    transaction: int
    records: int
    is_open: bool


NOWHERE = LogPlace(0, 0, is_open=False)


class Identities:
    """The identity of each record that a producer sends to one partition.

    Args:
        first: of the first record.
        producer_ids: the id of `first`, and the next ids after all epochs of an id are used. The
            caller may append.
        is_per_transaction: each transaction has its own epoch (transaction version 2).
    """

    def __init__(
        self,
        first: ProducerIdentity,
        producer_ids: list[int] | None = None,
        *,
        is_per_transaction: bool = False,
    ) -> None:
        self.first = first
        self.producer_ids = [first.producer_id] if producer_ids is None else producer_ids
        self.is_per_transaction = is_per_transaction

    def lacks_id(self, transaction: int) -> bool:
        """Return whether `producer_ids` needs another id before this transaction begins."""
        return self.is_per_transaction and self._split(transaction)[0] >= len(self.producer_ids)

    def begins_id(self, transaction: int) -> bool:
        """Return whether a transaction is the first with its producer id."""
        return self.is_per_transaction and self._split(transaction)[1] == 0

    def _split(self, transaction: int) -> tuple[int, int]:
        return divmod(self.first.producer_epoch + transaction, EPOCHS_COUNT)

    def at(self, transaction: int, count: int) -> ProducerIdentity:
        """Return the identity of a batch that begins at a place."""
        if not self.is_per_transaction:
            if self.first.base_sequence < 0:
                return self.first
            sequence = increment_sequence(self.first.base_sequence, count % SEQUENCES_COUNT)
            return ProducerIdentity(self.first.producer_id, self.first.producer_epoch, sequence)
        index, epoch = self._split(transaction)
        return ProducerIdentity(self.producer_ids[index], epoch, count)

    def find_place(self, entries: Iterable[ProducerEntry], appended_count: int) -> LogPlace:
        """Find the producer's progress in the log.

        Args:
            entries: of the producer state at its end.
            appended_count: offsets assigned since the producer began. It shows how often the
                sequence number has wrapped after 2^31 records.
        """
        found = NOWHERE
        for each in entries:
            if each.producer_id not in self.producer_ids:
                continue
            if self.is_per_transaction:
                index = self.producer_ids.index(each.producer_id)
                transaction = index * EPOCHS_COUNT + each.producer_epoch - self.first.producer_epoch
                count = each.last_sequence + 1 if each.has_batch else 0
            else:
                transaction, count = 0, 0
                if each.has_batch and each.producer_epoch == self.first.producer_epoch:
                    count = (each.last_sequence + 1 - self.first.base_sequence) % SEQUENCES_COUNT
                    count += max(appended_count - count, 0) // SEQUENCES_COUNT * SEQUENCES_COUNT
            is_open = each.current_txn_first_offset >= 0
            found = max(found, LogPlace(transaction, count, is_open=is_open))
        return found


# -- producer ids that we choose in a log dir: nothing in it knows them.
#
# 1. Snapshots of every partition, set aside or not, are read before an id is chosen.
# 2. The caller checks the producer states of the partitions it writes to, as a broker recovers
#    them.
# 3. The caller, a coordinator, checks the records of `__transaction_state`.
# 4. The end of another log that no snapshot covers is not checked, as it would have to be read.
#
# Batches of a killed run in other partitions, and producers that all snapshots have forgotten, are
# therefore avoided only by chance. An id is one of 2^50. Brokers count up from 0 and never reach
# our ids. That is checked, too, if the cluster's metadata has the next id of the brokers.


def require_out_of_reach(next_broker_id: int | None) -> None:
    """Refuse to choose an id that the cluster's brokers may hand out.

    Args:
        next_broker_id: the next id that a controller hands out, None if unknown.
    """
    if next_broker_id is not None and next_broker_id > FIRST_ID:
        raise RefusedError(
            f"by the cluster's metadata brokers were given producer ids up to {next_broker_id - 1}."
            f" The ids from {FIRST_ID} on, which eoctl takes by itself, may be given to clients",
            next_step="--producer-id ID (produce, copy) with one that no client has",
        )


class OwnIds:
    """A source of ids for log dirs. Their snapshots are read for the first id.

    Args:
        log_dirs: their paths.
        next_broker_id: as in `require_out_of_reach`.
        notes: gets messages about places that could not be read.
    """

    def __init__(
        self, log_dirs: Iterable[str], next_broker_id: int | None, notes: list[str]
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._next_broker_id = next_broker_id
        self._notes = notes

    @cached_property
    def _places(self) -> dict[int, set[str]]:
        """The partitions that know each of our ids."""
        require_out_of_reach(self._next_broker_id)
        found = snapshot_ids(map(read_log_dir, self._log_dirs), FIRST_ID)
        self._notes += (
            f"{each}: its producers are unknown; a new id is one of them with a chance of 1 in 2^50"
            for each in found.unknown
        )
        return found.places

    def random_id(self, known: Container[int] = ()) -> int:
        """Choose an id for a session, or for a transactional id, that is not in `known` either."""
        return self._first(random_producer_ids(), known)

    def id_of_run(self, known: Container[int], names: Iterable[str], end_offset: int) -> int:
        """Choose an id for a run without a session. A plan and its run get the same id.

        Args:
            known: ids that the partitions know.
            names: of the partitions.
            end_offset: the highest log end offset of the partitions.
        """
        return self._first(run_ids(names, end_offset), known)

    def _first(self, candidates: Iterable[int], known: Container[int]) -> int:
        places = self._places
        found = next(each for each in candidates if each not in places and each not in known)
        places[found] = set()
        return found

    def id_of_copy(self, of: object, ids: range, mine: Container[int], path: str) -> int:
        """Choose the id derived from source and destination of a copy.

        Args:
            of: source and destination.
            ids: the range.
            mine: ids that the destination knows. Such an id is the copy's own.
            path: of the destination.
        """
        places = self._places
        found = next(
            each
            for each in derived_ids(of, ids)
            if each in mine or places.get(each, {path}) == {path}
        )
        places.setdefault(found, set()).add(path)
        return found
