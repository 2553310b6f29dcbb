"""A filter that is run once for each transaction: records on its stdin, new ones on its stdout."""

from __future__ import annotations

import io
import os
import selectors
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from eoctl.clients.programs.program import CHUNK_BYTES, ProgramError, command_words, describe_ending
from eoctl.clients.text.inputs import BytesAs, InputFormat, read_addressed, read_records
from eoctl.clients.text.record_writers import encode_json
from storage.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eoctl.clients.log.consumed import Records
    from eoctl.clients.text.inputs import InputRecord

MAX_ANSWER_BYTES = 256 << 20  # it is held in memory until its transaction is sent


class Filter:
    """A command line, and how records are written for it and read from it.

    Args:
        command: is run without a shell.
        format: LINES: a record is its value, on a line; JSONL: as `consume` prints them, and as
            `produce` reads them.
        bytes_as: what strings of JSON Lines stand for.
        needs_keys: whether each target topic takes no record without a key. Of several, records
            name theirs.

    Raises:
        UsageError: it is no command line, or lines cannot be what the targets take.
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
            raise UsageError("--format msgpack: a filter is given lines", next_step="lines, jsonl")
        if len(needs_keys) > 1 and format is InputFormat.LINES:
            raise UsageError(
                "several --to-topic: each record names its own, and lines have no names",
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
        """Of the program, for errors."""
        return f"--exec {self._words[0]}"

    def run(self, parts: list[Records], path: str) -> Iterator[tuple[str, InputRecord]]:
        """Give records to the program, and return those that it answers with, by topic.

        Args:
            parts: of one partition, in order.
            path: of the partition, for errors.

        Raises:
            RefusedError: a record is no line.
            ProgramError: it cannot be started, answers without end, or its exit status is not 0.
            UsageError: what it answers is malformed; raised while the answer is gone through.
        """
        data = b"".join(self._encoded(each, path) for each in parts)
        given = f"given offsets {parts[0].first_offset} to {parts[-1].last_offset} of {path}"
        try:
            # Of a process group of its own: Ctrl-C is ours, and ends it.
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
                if len(answer) <= MAX_ANSWER_BYTES:
                    status = process.wait()
            finally:
                if status is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        if status is None:
            raise ProgramError(
                f"{self.name}: answers with more than {MAX_ANSWER_BYTES} bytes, {given}",
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
    """Give a program its input while reading what it answers, to the end or beyond the limit.

    It need not read all of its input.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    answer, view = bytearray(), memoryview(data)
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(answer) <= MAX_ANSWER_BYTES:
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
