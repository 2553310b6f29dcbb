"""Results of a check by partition directory, for a later run.

A result is valid until its inputs change. The inputs are the files by name, size and time, the log
dir's checkpoints of the partition, its last stop, and the options. A result that depends on an age
holds for the same time only. You can delete the file (`storage.dirs.state_file`) at any time.

A disk may change bytes and keep size and time. A resumed run counts the reads of an interrupted run
as its own. It does not count the reads of a finished run, or reads more than a day old.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.file_facts import UNREADABLE, listing_digest
from recovery.fsck.one_pass import CheckResult
from storage.dirs.state_file import StateFile, StateSchema, read_as
from storage.errors import UsageError
from storage.files import fsio

if TYPE_CHECKING:
    from recovery.fsck.one_pass import CheckJob

SAVED_EVERY_S = 5.0
FRESH_MS = 86_400_000


class KnownDirectory(NamedTuple):
    """A row of the file: the result of a directory.

    Attributes:
        key: digest of all inputs of the result.
        read_ms: when its files were read.
        is_over: the run that read it has finished.
        result: to be read as `CheckResult`.
    """

    path: str
    key: bytes
    read_ms: int
    is_over: bool
    result: Any


SCHEMA = StateSchema("eoctl-check-state", 5, (KnownDirectory, CheckResult))


class CheckState:
    """Results by partition directory.

    Attributes:
        taken: rows taken from the file.

    Raises:
        RefusedError: the file is in a log dir.
        AccessError: the file exists and cannot be read, or cannot be written.
        UsageError: the file is something else.
    """

    def __init__(self, path: str, program: str) -> None:
        """Load the file. `program` is the release: releases may differ in their findings."""
        if not path:
            raise UsageError("--resume: no file is named")
        self._file = StateFile(SCHEMA, "the state of a check", path, program)
        self._known = {each.path: each for each in self._file.load(KnownDirectory)}
        self.taken: list[KnownDirectory] = []
        self._saved_s = time.monotonic()
        fsio.require_replaceable(path)

    @property
    def notes(self) -> list[str]:
        """Notes on unused rows of the file, for people."""
        return self._file.notes

    def take(self, job: CheckJob, key: bytes) -> CheckResult | None:
        """Return the result of an earlier run, if it is still valid. `key` is the job's."""
        known = self._known.get(os.path.realpath(job.selected.partition.path))
        if known is None or known.key not in (key, _key_at(job, key)):
            return None
        try:
            result = read_as(CheckResult, known.result)
        except ValueError as exc:
            self._file.pass_over(f"damaged ({exc})")
            return None
        self.taken.append(known)
        return result

    @property
    def unread_count(self) -> int:
        """The number of taken directories that may have changed on disk since they were read."""
        oldest_ms = _wall_ms() - FRESH_MS
        return sum(each.is_over or each.read_ms < oldest_ms for each in self.taken)

    def add(self, job: CheckJob, key: bytes, result: CheckResult) -> None:
        """Add a result. `key` is the job's before it began."""
        if key != key_of(job) or result.row.unreadable:
            return  # changed meanwhile, or may be readable the next time
        if any(each.check_id == "TXO-1" for each in result.findings):
            key = _key_at(job, key)
        path = os.path.realpath(job.selected.partition.path)
        self._known[path] = KnownDirectory(
            path=path, key=key, read_ms=_wall_ms(), is_over=False, result=result
        )
        if time.monotonic() - self._saved_s >= SAVED_EVERY_S:
            self.save()

    def finish(self) -> None:
        """Note that the run has finished."""
        self._known = {path: each._replace(is_over=True) for path, each in self._known.items()}

    def save(self) -> None:
        """Replace the file. Raises AccessError."""
        self._file.save(each for _, each in sorted(self._known.items()))
        self._saved_s = time.monotonic()


def key_of(job: CheckJob) -> bytes:
    """Return the digest of all inputs of a result. It changes if any of them does."""
    selected, options = job.selected, job.options
    directory, log_dir = selected.partition, selected.log_dir
    listing = listing_digest(directory.path)
    if listing == UNREADABLE:
        return os.urandom(16)
    facts: list[Any] = [listing, options.verify_crc, options.deep, options.limits]
    facts.append(options.broker_version)
    facts.append(options.now_ms if options.predicts else None)
    if log_dir is not None:
        facts += [
            log_dir.stopped,
            log_dir.recovery_point(directory),
            log_dir.log_start_offset(directory),
            log_dir.high_watermark(directory),
            (log_dir.cleaner_offsets or {}).get(directory.topic_partition),
        ]
    facts.append(job.fate)
    if job.image is not None:
        facts.append(job.image.end_offset)
    return sha256(repr(facts).encode("utf-8", "surrogateescape")).digest()


def _key_at(job: CheckJob, key: bytes) -> bytes:
    """Return the key of a result that holds only now: an open transaction becomes late."""
    return sha256(key + repr(job.options.now_ms).encode()).digest()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
