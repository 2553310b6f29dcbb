"""The session of a producer: links an input with its records in the logs, beyond a single run.

A session has the producer id of an input, and the end of each log when it began. It also has the
position in the input when it was last saved, with a digest up to there. It may be behind the log.
The log decides, by its sequence numbers of that producer. It may be ahead of the log, if a crash of
the machine took batches that were not synced. Another run reads the input from its beginning, skips
the records that the log has, and sends the rest. The input may have grown, but must not have
changed:

- up to the saved position, by its digest
- after it, as far as the log has it, by comparing each record with the log

The file is msgpack with a checksum, is replaced as a whole, and is outside of every log dir.
"""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.partitions.identity import SessionFormat
from storage.dirs.state_file import StateSchema
from storage.errors import RefusedError
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from storage.files.fsio import FileSystem
    from storage.formats.record import RecordHeader

DIGEST_BYTES = sha256().digest_size
NEXT_STEP = "give the input and the options of the first run, or another file for a new session"
# Key, value and headers of a record.
Content = tuple["bytes | None", "bytes | None", "tuple[RecordHeader, ...]"]


class SessionPartition(NamedTuple):
    """One partition of a session.

    Attributes:
        name: TOPIC-N.
        base_sequence: of its first record.
        start_offset: the log end offset when the session began.
        end_offset: the log end offset when the session was saved.
    """

    name: str
    base_sequence: int
    start_offset: int
    end_offset: int


class ProduceSession(NamedTuple):
    """The content of the file.

    Attributes:
        arguments: the options that must be the same in every run, by name.
        producer_ids: in their order. There are several if the epochs of the first were used up.
        producer_epoch: of the first record.
        partitions: by number.
        input_pos: number of bytes of the input that were read and sent.
        input_sha256: digest of these bytes.
        last_sha256: digest of the record that ended there. Its line may have been completed since.
        ends: numbers of records (counted from the beginning) after which a transaction was ended
            early, because the input had ended.
    """

    arguments: dict[str, Any]
    producer_ids: tuple[int, ...]
    producer_epoch: int
    partitions: tuple[SessionPartition, ...]
    input_pos: int = 0
    input_sha256: bytes = sha256().digest()
    last_sha256: bytes = sha256().digest()
    ends: tuple[int, ...] = ()

    def require_same(self, arguments: dict[str, Any], path: str) -> None:
        """Require the same partitions, and the same format of the input.

        Raises:
            RefusedError: an option differs.
        """
        for name, value in arguments.items():
            before = self.arguments.get(name)
            if before != value:
                raise RefusedError(
                    f"{path}: the session was begun with {name} {before}, not {value}",
                    next_step=NEXT_STEP,
                )


SCHEMA = StateSchema("eoctl producer session", 1, (ProduceSession,))
_FILE: SessionFormat[ProduceSession] = SessionFormat(SCHEMA, "the session of a producer", NEXT_STEP)


def load_session(path: str) -> ProduceSession | None:
    """Read a session, None without a file.

    Raises:
        AccessError: it cannot be read.
        RefusedError: it is not such a session.
    """
    return _FILE.load(path, _check)


def _check(session: ProduceSession) -> None:
    """Require that all numbers are in their range, because a file may contain any number."""
    numbers = [session.input_pos, *session.producer_ids, *session.ends]
    small = [session.producer_epoch]
    for each in session.partitions:
        small.append(each.base_sequence)
        numbers += [each.start_offset, each.end_offset]
    if not all(0 <= each <= INT64_MAX for each in numbers):
        raise ValueError("a number is out of range")
    if not all(0 <= each <= INT32_MAX for each in small):
        raise ValueError("an epoch or sequence number is out of range")
    if {len(session.input_sha256), len(session.last_sha256)} != {DIGEST_BYTES}:
        raise ValueError("a digest is none")
    if not session.producer_ids or not session.partitions:
        raise ValueError("there is no producer id or no partition")


def save_session(fs: FileSystem, path: str, session: ProduceSession) -> None:
    """Replace the file durably. Raises AccessError."""
    _FILE.save(fs, path, session)


def digest_of(content: Content) -> bytes:
    """Return a digest of one record."""
    return sha256(repr(content).encode()).digest()


class DigestedInput:
    """An input whose bytes are digested while it is read, and whose beginning must be the same.

    Args:
        file: is read from its beginning.
        name: for errors.
        known_pos, known_sha256: number of bytes in an earlier run, and their digest.
    """

    def __init__(self, file: BinaryIO, name: str, known_pos: int, known_sha256: bytes) -> None:
        self._read: Callable[[int], bytes] = getattr(file, "read1", file.read)
        self._name = name
        self._known_pos = known_pos
        self._known_sha256 = known_sha256
        self._digest = sha256()
        self._digested_pos = 0
        self._waiting: deque[bytes] = deque()

    def read1(self, count: int) -> bytes:
        """Read available bytes, at most `count`.

        Raises:
            RefusedError: the input has changed.
        """
        data = self._read(count)
        self._waiting.append(data)
        if self._digested_pos < self._known_pos:
            self._digest_to(self._known_pos)
            is_whole = self._digested_pos == self._known_pos
            if not (data or is_whole):
                sent = f"the session had sent {self._known_pos}"
                raise changed_input(self._name, f"it ends at {self._digested_pos} bytes, {sent}")
            if is_whole and self._digest.digest() != self._known_sha256:
                raise changed_input(self._name, f"its first {self._known_pos} bytes are others")
        return data

    read = read1

    def digest_at(self, pos: int) -> bytes:
        """Return the digest up to a position that has been read. Positions must not decrease."""
        self._digest_to(pos)
        return self._digest.digest()

    def _digest_to(self, pos: int) -> None:
        while self._waiting and self._digested_pos < pos:
            data = self._waiting.popleft()
            wanted_bytes = pos - self._digested_pos
            if len(data) > wanted_bytes:
                self._waiting.appendleft(data[wanted_bytes:])
                data = data[:wanted_bytes]
            self._digest.update(data)
            self._digested_pos += len(data)


def changed_input(name: str, what: str) -> RefusedError:
    """Return the error for an input that is not the session's input."""
    return RefusedError(f"{name}: not the input of the session: {what}", next_step=NEXT_STEP)
