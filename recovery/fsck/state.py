"""What a check has found, by partition directory, so that a later one need not read it again.

A result is taken if nothing has changed that it came from: the files by name, size and time, what
the log dir's checkpoints say of the partition, how the log dir was left, and the options. What is
told of by its age holds at the same time only. The file (`storage.dirs.state_file`) can be deleted
at any time.

A disk may change bytes and leave size and time as they are. What an interrupted run has read counts
as read by the run that goes on. What a finished run has read does not, nor does anything that was
read more than a day ago.
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
    """A row of the file: what was found in a directory.

    Attributes:
        key: digest of all that the result comes from.
        read_ms: when its files were read.
        is_over: the run that read it came to its end.
        result: to be read as `CheckResult`.
    """

    path: str
    key: bytes
    read_ms: int
    is_over: bool
    result: Any


SCHEMA = StateSchema("eoctl-check-state", 4, (KnownDirectory, CheckResult))


class CheckState:
    """Results by partition directory.

    Attributes:
        taken: what was taken from the file.

    Raises:
        RefusedError: the file lies in a log dir.
        AccessError: it is there and cannot be read, or cannot be written.
        UsageError: it is something else.
    """

    def __init__(self, path: str, program: str) -> None:
        """Load it; `program` names the release, for one may find what another does not."""
        if not path:
            raise UsageError("--resume: no file is named")
        self._file = StateFile(SCHEMA, "the state of a check", path, program)
        self._known = {each.path: each for each in self._file.load(KnownDirectory)}
        self.taken: list[KnownDirectory] = []
        self._saved_s = time.monotonic()
        fsio.require_replaceable(path)

    @property
    def notes(self) -> list[str]:
        """What of the file was not used, for people."""
        return self._file.notes

    def take(self, job: CheckJob, key: bytes) -> CheckResult | None:
        """Return the result of an earlier run, if it still holds; `key` is that of the job."""
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
        """How many of the directories that were taken may have rotted since they were read."""
        oldest_ms = _wall_ms() - FRESH_MS
        return sum(each.is_over or each.read_ms < oldest_ms for each in self.taken)

    def add(self, job: CheckJob, key: bytes, result: CheckResult) -> None:
        """Note a result; `key` is that of the job before it was begun."""
        if key != key_of(job) or result.row.unreadable:
            return  # it has changed meanwhile, or may be readable the next time
        if any(each.check_id == "TXO-1" for each in result.findings):
            key = _key_at(job, key)
        path = os.path.realpath(job.selected.partition.path)
        self._known[path] = KnownDirectory(
            path=path, key=key, read_ms=_wall_ms(), is_over=False, result=result
        )
        if time.monotonic() - self._saved_s >= SAVED_EVERY_S:
            self.save()

    def finish(self) -> None:
        """Say that the run has come to its end."""
        self._known = {path: each._replace(is_over=True) for path, each in self._known.items()}

    def save(self) -> None:
        """Replace the file. Raises AccessError."""
        self._file.save(each for _, each in sorted(self._known.items()))
        self._saved_s = time.monotonic()


def key_of(job: CheckJob) -> bytes:
    """Digest of all that a result comes from; changes when any of it does."""
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
    """Key of a result that holds at that time only: what is open grows older, and is late then."""
    return sha256(key + repr(job.options.now_ms).encode()).digest()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
