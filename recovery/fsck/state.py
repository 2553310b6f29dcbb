"""What a check has found, by partition directory, so that a later one need not read it again.

A result is taken if nothing has changed that it came from: the files by name, size and time, what
the log dir's checkpoints say of the partition, how the log dir was left, and the options. What
is told of by its age holds at the same time only. The file is msgpack, compressed, and of this
program's own making: it can be deleted at any time.
"""

from __future__ import annotations

import os
import time
import zlib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.changes.file_facts import UNREADABLE, listing_digest
from recovery.fsck.one_pass import CheckResult, PartitionRow
from recovery.rules.findings import Finding, Severity
from recovery.start.changes import StartAction, StartChange
from storage import fsio
from storage.discovery import require_outside_log_dirs
from storage.errors import AccessError, UsageError
from storage.small_file import read_small_file

if TYPE_CHECKING:
    from recovery.fsck.one_pass import CheckJob

STATE_NAME = "eoctl-check-state"
STATE_VERSION = 2
COMPRESSION_LEVEL = 1
MAX_FILE_BYTES = 1 << 30
SAVED_EVERY_S = 5.0


class CheckState:
    """Results by partition directory.

    Raises:
        RefusedError: the file lies in a log dir.
        AccessError: it is there and cannot be read, or cannot be written.
        UsageError: it is something else, or cut short.
    """

    def __init__(self, path: str, program: str) -> None:
        """Load it; `program` names the release, for one may find what another does not."""
        if not path:
            raise UsageError("--resume: no file is named")
        require_outside_log_dirs(path, next_step="keep the state elsewhere")
        self._path = path
        self._program = program
        self._known: dict[str, tuple[bytes, Any]] = _load(path, program)
        self._saved_s = time.monotonic()
        fsio.require_replaceable(path)

    def take(self, job: CheckJob, key: bytes) -> CheckResult | None:
        """Return the result of an earlier run, if it still holds; `key` is that of the job."""
        known = self._known.get(os.path.realpath(job.selected.partition.path))
        if known is None or known[0] not in (key, _key_at(job, key)):
            return None
        findings, row, changes, problems, log_start_line = known[1]
        return CheckResult(
            tuple(_finding(each) for each in findings),
            PartitionRow(*row),
            tuple(StartChange(path, StartAction(action), size) for path, action, size in changes),
            tuple(problems),
            log_start_line,
        )

    def add(self, job: CheckJob, key: bytes, result: CheckResult) -> None:
        """Note a result; `key` is that of the job before it was begun."""
        if key != key_of(job) or result.row.unreadable:
            return  # it has changed meanwhile, or may be readable the next time
        if any(each.check_id == "TXO-1" for each in result.findings):
            key = _key_at(job, key)
        path = os.path.realpath(job.selected.partition.path)
        findings = [[*each] for each in result.findings]
        changes = [[*each] for each in result.changes]
        rest = [[*result.problems], result.log_start_line]
        self._known[path] = key, [findings, [*result.row], changes, *rest]
        if time.monotonic() - self._saved_s >= SAVED_EVERY_S:
            self.save()

    def save(self) -> None:
        """Replace the file. Raises AccessError."""
        from msgpack import packb

        rows = [[path, key, packed] for path, (key, packed) in sorted(self._known.items())]
        data = packb(
            [STATE_NAME, STATE_VERSION, self._program, rows], unicode_errors="surrogateescape"
        )
        fsio.replace_file(fsio.FileSystem(), self._path, zlib.compress(data, COMPRESSION_LEVEL))
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
    if job.image is not None:
        facts.append(job.image.end_offset)
    return sha256(repr(facts).encode("utf-8", "surrogateescape")).digest()


def _key_at(job: CheckJob, key: bytes) -> bytes:
    """Key of a result that holds at that time only: what is open grows older, and is late then."""
    return sha256(key + repr(job.options.now_ms).encode()).digest()


def _finding(values: list[Any]) -> Finding:
    finding = Finding(*values)
    return finding._replace(severity=Severity(finding.severity))


def _load(path: str, program: str) -> dict[str, tuple[bytes, Any]]:
    from msgpack import unpackb

    try:
        data = read_small_file(Path(path), MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise AccessError(exc, path) from exc
    try:
        name, version, made_by, rows = unpackb(
            zlib.decompress(data), unicode_errors="surrogateescape"
        )
        if name != STATE_NAME:
            raise _bad(path, str(name)[:40])
        if (version, made_by) != (STATE_VERSION, program):
            return {}  # of another release: everything is read again
        return {path: (key, packed) for path, key, packed in rows}
    except (ValueError, TypeError, zlib.error) as exc:
        raise _bad(path, str(exc)) from None


def _bad(path: str, found: str) -> UsageError:
    return UsageError(
        f"{path}: not the state of a check ({found})",
        next_step="name another file, or remove this one: everything is then read again",
    )
