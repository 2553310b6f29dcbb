"""A program that gets records: it reads lines on its stdin and answers each hand-over.

    {"kind":"start", "topic":..., "partition":..., "next_offset":N, "commit":..., "state":...}
    {"offset":N, ...}                                  records, as --output jsonl has them
    {"kind":"commit", "next_offset":M, "records":K}    the end of a hand-over

The program answers each commit line with one line on its stdout: an object with the same
`next_offset`. It also has `state`, any JSON value, if that is to be saved. Otherwise the commit
line itself is a valid answer. stdin ends after the last record. A hand-over without a commit line
does not count.
"""

from __future__ import annotations

import io
import json
import os
import selectors
import shlex
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from eoctl.clients.record_formats.inputs import BytesAs, InputFormat, read_addressed, read_records
from eoctl.clients.record_formats.record_writers import encode_json
from eoctl.output import message
from storage.errors import EXIT_ACCESS, EoctlError, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eoctl.clients.log.consumed import Records
    from eoctl.clients.record_formats.inputs import InputRecord


MAX_ANSWER_BYTES = 64 << 20
CHUNK_BYTES = 1 << 16
STOP_S = 5.0
SILENCE_S = 10.0  # without an answer, until a message is printed


class ProgramError(EoctlError):
    """The program cannot be started, has failed, or violates the protocol."""

    exit_status = EXIT_ACCESS


class Program:
    """The running program, as a context manager that ends it."""

    def __init__(self, command: str) -> None:
        """Start the program, without a shell.

        Raises:
            UsageError: `command` is not a command line.
            ProgramError: it cannot be started.
        """
        words = command_words(command)
        self.name = words[0]
        self._answers = bytearray()
        self._is_reported = False
        try:
            # In its own process group, so that only we get Ctrl-C and pass it on as the end of
            # stdin.
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
            )
        except OSError as exc:
            raise ProgramError(f"--exec {self.name}: {exc.strerror}") from exc
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_stdin()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def hand_over(self, data: bytes, next_offset: int, *, needs_state: bool) -> Any:
        """Write lines, the commit line last, and return the state in the program's answer.

        Raises:
            ProgramError: it ended before it answered, or its answer is invalid.
        """
        line = self._exchange(data)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("next_offset") != next_offset:
            raise ProgramError(
                f"--exec {self.name}: answered {_shown(line)} to the commit line of"
                f" next_offset {next_offset}",
                next_step='print one line such as {"next_offset":N}, and flush it',
            )
        if needs_state and "state" not in answer:
            raise ProgramError(
                f"--exec {self.name}: its answer has no state",
                next_step='with --commit atomic print {"next_offset":N,"state":...}',
            )
        return answer.get("state")

    def finish(self, data: bytes = b"") -> None:
        """Write lines that require no answer, close stdin, and wait for the program's end.

        Raises:
            ProgramError: it printed an unexpected line, or its exit status is not 0.
        """
        if data:
            self._write(data)
        self._close_stdin()
        while self._read_answers():
            pass
        if self._answers:
            raise self._unasked()
        status = self._process.wait()
        if status:
            raise ProgramError(
                f"--exec {self.name}: {describe_ending(status)} after all was handed over"
            )

    def _exchange(self, data: bytes) -> bytes:
        self._write(data)
        while (end := self._answers.find(b"\n")) < 0:
            if not self._read_answers():
                raise self._ended()
        line = bytes(self._answers[:end])
        del self._answers[: end + 1]
        if self._answers:
            raise self._unasked()
        return line

    def _write(self, data: bytes) -> None:
        """Write all of `data` and read meanwhile, so that neither side waits for the other."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        view = memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            while view:
                for key, _ in selector.select():
                    if key.fileobj is stdout:
                        self._take(stdout.read(CHUNK_BYTES))
                        continue
                    try:
                        view = view[stdin.write(view[:CHUNK_BYTES]) or 0 :]
                    except BrokenPipeError:
                        raise self._ended() from None

    def _read_answers(self) -> bool:
        """Wait for more of its output. Return False at the end."""
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not self._is_reported and not selector.select(SILENCE_S):
                self._is_reported = True
                message(
                    f"--exec {self.name}: has not answered for {SILENCE_S:g} s; it is waited for"
                    " (each commit line is to be answered with one line)"
                )
            selector.select()
        data = stdout.read(CHUNK_BYTES)
        if data == b"":
            return False
        self._answers += data or b""
        if len(self._answers) > MAX_ANSWER_BYTES:
            raise ProgramError(f"--exec {self.name}: a line of more than {MAX_ANSWER_BYTES} bytes")
        return True

    def _take(self, data: bytes | None) -> None:
        if data == b"":
            raise self._ended()
        self._answers += data or b""

    def _unasked(self) -> ProgramError:
        return ProgramError(
            f"--exec {self.name}: said {_shown(self._answers)}, which nobody requested",
            next_step="its stdout is for one line to each commit line; all else goes to stderr",
        )

    def _ended(self) -> ProgramError:
        self._close_stdin()
        try:
            words = describe_ending(self._process.wait(STOP_S))
        except subprocess.TimeoutExpired:
            words = "closed its stdin or stdout"
        return ProgramError(f"--exec {self.name}: {words} before it answered")

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()


def _shown(data: bytes | bytearray) -> str:
    """Return the beginning of a program's output, for a message."""
    return repr(bytes(data[:80]).decode(errors="backslashreplace"))


def command_words(command: str) -> list[str]:
    """Split a command line that runs without a shell. Raises UsageError: it is empty or invalid."""
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise UsageError(f"--exec {command}: {exc}") from exc
    if not words:
        raise UsageError("--exec: no program is named")
    return words


def describe_ending(status: int) -> str:
    """Return how a program ended that failed."""
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"


# -- a filter that runs once per transaction: records on its stdin, new records on its stdout


MAX_FILTERED_BYTES = 256 << 20  # kept in memory until its transaction is sent


class Filter:
    """A command line, and the formats of its input and its output.

    Args:
        command: runs without a shell.
        format: LINES: a record is its value, on a line. JSONL: as `consume` prints records, and as
            `produce` reads them.
        bytes_as: meaning of strings in JSON Lines.
        needs_keys: by target topic, whether it accepts no record without a key. If there are
            several topics, each record names its topic.

    Raises:
        UsageError: it is not a command line, or the targets do not accept lines.
    """

    def __init__(
        self,
        command: str,
        format: InputFormat,  # noqa: A002  # the option is called so
        bytes_as: BytesAs,
        *,
        needs_keys: Mapping[str, bool],
    ) -> None:
        self._words = command_words(command)
        if format is InputFormat.MSGPACK:
            raise UsageError("--format msgpack: a filter gets lines", next_step="lines, jsonl")
        if len(needs_keys) > 1 and format is InputFormat.LINES:
            raise UsageError(
                "several --to-topic need records that name their topic, and lines have no names",
                next_step='--format jsonl, where the filter puts "topic" into each record',
            )
        if any(needs_keys.values()) and format is InputFormat.LINES:
            raise UsageError(
                "the target is compacted and takes no record without a key",
                next_step="--format jsonl",
            )
        self._format = format
        self._bytes_as = bytes_as
        self._needs_keys = needs_keys

    @property
    def name(self) -> str:
        """The name of the program, for errors."""
        return f"--exec {self._words[0]}"

    def run(self, parts: list[Records], path: str) -> Iterator[tuple[str, InputRecord]]:
        """Run the program with records, and return the records in its output, by topic.

        Args:
            parts: of one partition, in order.
            path: of the partition, for errors.

        Raises:
            RefusedError: a record cannot be written as a line.
            ProgramError: it cannot be started, its output is too large, or its exit status is not
                0.
            UsageError: its output is malformed. Raised while the records are read.
        """
        data = b"".join(self._encoded(each, path) for each in parts)
        given = f"given offsets {parts[0].first_offset} to {parts[-1].last_offset} of {path}"
        try:
            # In its own process group, so that we get Ctrl-C, and end it.
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                process_group=0,
            )
        except OSError as exc:
            raise ProgramError(f"{self.name}: {exc.strerror}") from exc
        status: int | None = None
        with process:
            try:
                answer = _exchange(process, data)
                if len(answer) <= MAX_FILTERED_BYTES:
                    status = process.wait()
            finally:
                if status is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # with its child processes
        if status is None:
            raise ProgramError(
                f"{self.name}: answers with more than {MAX_FILTERED_BYTES} bytes, {given}",
                next_step="--txn-records N gives it fewer at once",
            )
        if status:
            raise ProgramError(
                f"{self.name}: {describe_ending(status)}, {given}; they will be given again"
            )
        return self._records(bytes(answer))

    def _records(self, answer: bytes) -> Iterator[tuple[str, InputRecord]]:
        file, name = io.BytesIO(answer), f"{self.name} (its output)"
        if len(self._needs_keys) > 1:
            return read_addressed(file, name, self._needs_keys, bytes_as=self._bytes_as)
        ((topic, needs_keys),) = self._needs_keys.items()
        records = read_records(
            file, name, self._format, bytes_as=self._bytes_as, needs_keys=needs_keys
        )
        return ((topic, each) for each in records)

    def _encoded(self, records: Records, path: str) -> bytes:
        if self._format is InputFormat.JSONL:
            return encode_json(records, self._bytes_as)
        lines = []
        for offset, value in zip(records.offsets, records.values, strict=True):
            if value is None or b"\n" in value:
                what = "has no value" if value is None else "holds more than one line"
                raise RefusedError(
                    f"{path}: the record at offset {offset} {what}", next_step="--format jsonl"
                )
            lines.append(value)
        return b"\n".join([*lines, b""])


def _exchange(process: subprocess.Popen[bytes], data: bytes) -> bytearray:
    """Write a program's input while reading its output, to its end or beyond the limit.

    The program need not read all of its input.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    answer, view = bytearray(), memoryview(data)
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(answer) <= MAX_FILTERED_BYTES:
            for key, _ in selector.select():
                if key.fileobj is process.stdout:
                    part = process.stdout.read(CHUNK_BYTES)
                    if not part:
                        return answer
                    answer += part
                    continue
                try:
                    view = view[process.stdin.write(view[:CHUNK_BYTES]) or 0 :]
                except BrokenPipeError:
                    view = view[:0]
                if not view:
                    selector.unregister(process.stdin)
                    process.stdin.close()
    return answer
