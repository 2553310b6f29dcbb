"""A producer over a partition directory: lines into idempotent batches, and the log's answers."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import AccessError, UsageError
from storage.formats.record_batch import MAX_SEQUENCE, NO_PRODUCER_ID, increment_sequence
from storage.record_builder import ProducerIdentity
from storage.segment import DEFAULT_MAX_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack
    from typing import BinaryIO

    from storage.producer_state import ProducerStateManager
    from storage.record_builder import BatchBuilder
    from storage.writer import PartitionWriter

# Brokers hand out producer ids from 0 up, in blocks. An id of theirs would one day be given to a
# client, whose first batches would then be taken for duplicates of ours and be dropped.
FIRST_OWN_PRODUCER_ID = 2**62


def own_producer_id(end_offset: int) -> int:
    """Return an id that no broker hands out, and that no earlier run used in this partition."""
    return FIRST_OWN_PRODUCER_ID + end_offset


def choose_identity(
    producers: ProducerStateManager,
    end_offset: int,
    *,
    producer_id: int | None = None,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
) -> ProducerIdentity:
    """Complete what the user gave: a known producer goes on where the log has it.

    Raises:
        UsageError: an epoch or a sequence number without a producer id to have it.
    """
    if producer_id == NO_PRODUCER_ID:
        if producer_epoch is not None or base_sequence is not None:
            raise UsageError("without a producer id there is neither epoch nor sequence number")
        return ProducerIdentity()
    chosen_id = own_producer_id(end_offset) if producer_id is None else producer_id
    state = producers.producers.get(chosen_id)
    if producer_epoch is None:
        producer_epoch = 0 if state is None else max(state.producer_epoch, 0)
    if base_sequence is None:
        base_sequence = 0
        if state is not None and state.producer_epoch == producer_epoch:
            last = state.last_sequence
            base_sequence = 0 if last == MAX_SEQUENCE else last + 1
    return ProducerIdentity(chosen_id, producer_epoch, base_sequence)


class Outcome(NamedTuple):
    """What a producer has done; offsets and sequence numbers are None if nothing was appended.

    `duplicates` are records that the log had already; they were not appended again.
    """

    records: int
    batches: int
    duplicates: int
    base_offset: int | None
    last_offset: int | None
    base_sequence: int | None
    last_sequence: int | None


class Producer:
    """Sends records in batches to a writer.

    Args:
        writer: of the partition.
        builder: decides what a batch holds.
        identity: producer id, epoch, and the sequence number of the first record.
        now_ms: the clock, asked once a batch.
        timestamp_ms: of every record, in place of the clock.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        builder: BatchBuilder,
        identity: ProducerIdentity,
        *,
        now_ms: Callable[[], int],
        timestamp_ms: int | None = None,
    ) -> None:
        self.writer = writer
        self.identity = identity
        self._builder = builder
        self._now_ms = now_ms
        self._timestamp_ms = timestamp_ms
        self._batch_ms = 0
        self._next_sequence = identity.base_sequence
        self._outcome = Outcome(0, 0, 0, None, None, None, None)

    @property
    def outcome(self) -> Outcome:
        """What was done so far."""
        return self._outcome

    def send(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; a batch that is full goes to the log.

        Raises:
            AppendError, AccessError: as `PartitionWriter.append`.
        """
        builder = self._builder
        if not len(builder):
            self._start_batch()
        if not builder.add(key, value, self._batch_ms):
            self.flush()
            self._start_batch()
            builder.add(key, value, self._batch_ms)

    def _start_batch(self) -> None:
        self._batch_ms = self._now_ms() if self._timestamp_ms is None else self._timestamp_ms

    def flush(self) -> None:
        """Append what waits."""
        count = len(self._builder)
        if not count:
            return
        sequence = self._next_sequence
        batch = self._builder.build(self.identity._replace(base_sequence=sequence))
        appended = self.writer.append(batch)
        before = self._outcome
        if appended.is_duplicate:
            after = before._replace(duplicates=before.duplicates + count)
        else:
            first = before.base_offset is None
            after = before._replace(
                records=before.records + count,
                batches=before.batches + 1,
                base_offset=appended.base_offset if first else before.base_offset,
                last_offset=appended.last_offset,
            )
        if sequence >= 0:
            last_sequence = increment_sequence(sequence, count - 1)
            if not appended.is_duplicate:
                if after.base_sequence is None:
                    after = after._replace(base_sequence=sequence)
                after = after._replace(last_sequence=last_sequence)
            self._next_sequence = increment_sequence(last_sequence, 1)
        self._outcome = after


def open_input(name: str, stack: ExitStack) -> BinaryIO:
    """Open the file with the lines; `-` is the standard input.

    Raises:
        AccessError: it cannot be opened.
    """
    if name == "-":
        if sys.stdin is None:
            raise AccessError(OSError(errno.EBADF, os.strerror(errno.EBADF)), "standard input")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as exc:
        raise AccessError(exc, name) from exc


def separator_bytes(text: str) -> bytes:
    """The bytes of a separator as they came on the command line.

    Raises:
        UsageError: there are none.
    """
    if not text:
        raise UsageError("--key-separator: it must not be empty")
    return text.encode("utf-8", "surrogateescape")


def read_lines(
    file: BinaryIO,
    name: str,
    *,
    key_separator: bytes | None = None,
    needs_keys: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[bytes | None, bytes]]:
    r"""Give the lines of a file as (key, value); only the `\n` at the end of a line is left out.

    Args:
        file: is read to its end.
        name: of the file, for errors.
        key_separator: what ends the key of each line; None: no keys.
        needs_keys: the topic is compacted, and takes no record without a key.
        on_bytes: told how much was read.

    Raises:
        UsageError: a line has no key, or is longer than any batch may be.
    """
    if needs_keys and key_separator is None:
        raise UsageError(
            "the topic is compacted and takes no record without a key",
            next_step="--key-separator TEXT",
        )
    limit_bytes = DEFAULT_MAX_BATCH_BYTES
    number = 0
    while line := file.readline(limit_bytes):
        number += 1
        if on_bytes is not None:
            on_bytes(len(line))
        if line.endswith(b"\n"):
            line = line[:-1]
        elif len(line) == limit_bytes:
            raise UsageError(f"{name}: line {number} is longer than {limit_bytes} bytes")
        if key_separator is None:
            yield None, line
            continue
        key, separator, value = line.partition(key_separator)
        if not separator:
            raise UsageError(f"{name}: line {number} has no {key_separator!r} after a key")
        yield key, value
