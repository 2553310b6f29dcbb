"""A plan: the steps of a changing command and their price. A value, and JSON.

A step touches one file and carries the expected facts of that file (`file_facts`). `apply` refuses
the plan if anything is different. Its paths may only lead to files of partitions and to the
checkpoints of the log dirs it names. A plan from elsewhere therefore has no other effect.

Format (eoctl-plan(5)): one JSON object. `content` of a step is zlib, then base64. Instead of it,
`pieces` may name the `.log` files of the partition that the content is copied from.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import time
import zlib
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.file_facts import (
    FileFacts,
    Range,
    inspect,
    is_still,
    kept_bytes_of,
    list_files,
    number_of,
    plain_object,
    read_chunks,
    text_of,
)
from recovery.changes.plans.path_limits import (
    begins_a_log_dir,
    is_metadata,
    log_dir_of,
    require_in_reach,
    why_not_confined,
    why_not_made,
)
from storage.dirs.state_file import StateSchema
from storage.errors import AccessError, RefusedError, UsageError
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    LOG_FILE_KINDS,
    FileKind,
    classify,
    is_clean_marker,
    parse_partition_name,
)
from storage.files.fsio import require_own_file
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


# -- new content from ranges of files of the log, which are copied as bytes.
#
# A `.log` consists of ranges of `.log` files. Another file of a segment is a copy of its own kind.
#
# A plan has the places of the bytes and one digest, not the bytes: a replica's log may be as large
# as a disk. The step reads the bytes, and compares them with the digest before the file gets its
# name.


_COPIED = LOG_FILE_KINDS - {FileKind.LEADER_EPOCHS}


class LogSlice(NamedTuple):
    """The bytes [start_pos, end_pos) of a file of the log, by its absolute path."""

    path: str
    start_pos: int
    end_pos: int


class Pieces(NamedTuple):
    """Consecutive ranges, and the SHA-256 (hex) of all their bytes."""

    ranges: tuple[LogSlice, ...]
    sha256: str

    @property
    def total_bytes(self) -> int:
        """The total size of the ranges."""
        return sum(each.end_pos - each.start_pos for each in self.ranges)

    def to_json(self) -> dict[str, Any]:
        """Return the object that a plan stores."""
        return {"ranges": [each._asdict() for each in self.ranges], "sha256": self.sha256}

    @classmethod
    def from_json(cls, value: Any) -> Pieces:
        """Parse the output of `to_json`. Raises TypeError, KeyError or ValueError otherwise."""
        ranges = tuple(
            LogSlice(
                text_of(each["path"]), number_of(each["start_pos"]), number_of(each["end_pos"])
            )
            for each in value["ranges"]
        )
        for each in ranges:
            if each.start_pos >= each.end_pos:
                raise ValueError(f"an empty piece of {each.path}")
        return cls(ranges, text_of(value["sha256"]))


def take_pieces(ranges: Sequence[LogSlice]) -> Pieces:
    """Read all ranges once, for their digest.

    Raises:
        AccessError: a range cannot be read.
    """
    digest = sha256()
    for chunk in _chunks(ranges):
        digest.update(chunk)
    return Pieces(tuple(ranges), digest.hexdigest())


def read_pieces(pieces: Pieces) -> Iterator[bytes]:
    """Yield the bytes. They are as planned only if the iteration ends without an error.

    Raises:
        AccessError: they cannot be read.
        RefusedError: raised after the last chunk if the bytes are not as planned.
    """
    digest = sha256()
    for chunk in _chunks(pieces.ranges):
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != pieces.sha256:
        paths = ", ".join(dict.fromkeys(each.path for each in pieces.ranges))
        raise RefusedError(
            f"{paths}: not the bytes that the plan was made for",
            next_step="they were changed since, as by a broker that runs on them",
        )


def _chunks(ranges: Iterable[LogSlice]) -> Iterator[bytes]:
    for each in ranges:
        yield from read_chunks(each.path, each.start_pos, each.end_pos)


def why_not_readable(pieces: Pieces, target: str) -> str:
    """Return why a plan must not copy these into a file, or "". A plan may come from elsewhere."""
    kind = classify(Path(target).name).kind
    if kind not in _COPIED:
        return "which is no file of a segment, and only these are put together from pieces"
    wanted = parse_partition_name(Path(target).parent.name)
    for each in pieces.ranges:
        file = Path(each.path)
        found = parse_partition_name(file.parent.name)
        is_like = classify(file.name).kind is kind and file.is_absolute()
        if not is_like or ".." in file.parts or is_metadata(file.parent) or found != wanted:
            return f"from {each.path}, which is no .{kind} of the same partition"
    return ""


# -- plan


MAX_PLAN_BYTES = 1 << 30
PLAN_ID = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[a-z][a-z-]*-[0-9a-f]{4}")


class Action(StrEnum):
    """The action of a step on its file."""

    TRUNCATE = "truncate"  # truncate it in place
    REPLACE = "replace"  # replace the content under that name, or create a file
    REMOVE = "remove"
    MAKE = "make"  # create the directory of a new partition
    LINK = "link"  # a hard link to a closed segment of another directory
    APPEND = "append"  # only in the journal of a run that appends, never in a plan


class Step(NamedTuple):
    """One change of one file, or a new directory.

    Attributes:
        path: absolute.
        before: the expected file. None: no file is expected (REPLACE, and always MAKE and LINK).
        after_bytes: size afterwards, for TRUNCATE, REPLACE and LINK.
        content: for REPLACE, unless it has pieces.
        backup_bytes: size of the backup if it is copied: the truncated bytes without many zeros at
            their end, or the whole file. A whole file that can be linked is not copied.
        reason: text for people.
        pieces: for REPLACE: the ranges that its content is copied from. For LINK: the whole file.
    """

    action: Action
    path: str
    before: FileFacts | None
    after_bytes: int = 0
    content: bytes | None = None
    backup_bytes: int = 0
    reason: str = ""
    pieces: Pieces | None = None

    @property
    def log_dir(self) -> str:
        """The log dir of the file, or of its partition."""
        return self.directory if self.action is Action.MAKE else log_dir_of(self.path)

    @property
    def directory(self) -> str:
        """The directory that contains the file."""
        return str(Path(self.path).parent)

    @property
    def after_sha256(self) -> str:
        """SHA-256 (hex) of the content of REPLACE and LINK, else ""."""
        if self.pieces is not None:
            return self.pieces.sha256
        return "" if self.content is None else sha256(self.content).hexdigest()


class PlanSource(NamedTuple):
    """A file that the plan was derived from, and that no step touches."""

    path: str
    before: FileFacts


class PartitionListing(NamedTuple):
    """The names of Kafka's data files in a partition."""

    path: str
    names: tuple[str, ...]


class Plan(NamedTuple):
    """Steps in their order.

    Attributes:
        plan_id: names the journal and the backups.
        command: the command that made it.
        arguments: the request. The same command with the same arguments completes an unfinished
            plan.
        log_dirs: absolute paths of the touched log dirs.
        steps: the clean-shutdown markers come first.
        price: the losses and effects, as names and JSON values. None is unknown.
        sources: further files that must be unchanged.
        listings: of the touched partitions. No file may have been added or removed since.
    """

    plan_id: str
    command: str
    arguments: dict[str, Any]
    log_dirs: tuple[str, ...]
    steps: tuple[Step, ...]
    price: dict[str, Any]
    sources: tuple[PlanSource, ...] = ()
    listings: tuple[PartitionListing, ...] = ()

    @property
    def directories(self) -> list[str]:
        """All directories with touched files, each once, log dirs included."""
        return list(dict.fromkeys([*self.log_dirs, *(each.directory for each in self.steps)]))

    @property
    def made_directories(self) -> frozenset[str]:
        """The directories that the plan creates."""
        return frozenset(each.path for each in self.steps if each.action is Action.MAKE)


SCHEMA = StateSchema(
    "eoctl-plan", 2, (Plan, Step, PlanSource, PartitionListing, FileFacts, Action, Pieces, LogSlice)
)

# Version 1 lacked the actions `make` and `link`, and was the same otherwise.
_READABLE_VERSIONS = (1, SCHEMA.version)
_WITH_PIECES = frozenset({Action.REPLACE, Action.LINK})


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path without `..`. A symbolic link at its end stays a link.

    A partition belongs to the log dir that has its name, even if the name is a link elsewhere.
    """
    absolute = Path(path).absolute()
    return os.path.realpath(absolute) if ".." in absolute.parts else str(absolute)


# --- making a plan --------------------------------------------------------------------------------


def truncate_step(path: str, after_bytes: int, reason: str) -> Step:
    """Plan to truncate an existing file.

    Raises:
        AccessError, RefusedError: as `inspect`.
    """
    before = inspect(path, touched_from=after_bytes)
    if before is None:
        raise _gone(path)
    backup_bytes = kept_bytes_of(path, after_bytes, before.file_bytes)
    return Step(
        action=Action.TRUNCATE,
        path=path,
        before=before,
        after_bytes=after_bytes,
        content=None,
        backup_bytes=backup_bytes,
        reason=reason,
    )


def replace_step(path: str, content: bytes, reason: str) -> Step:
    """Plan to replace the content of a file, or to create it.

    Raises:
        AccessError, RefusedError: as `inspect`.
    """
    before = inspect(path)
    backup_bytes = 0 if before is None else before.file_bytes
    return Step(
        action=Action.REPLACE,
        path=path,
        before=before,
        after_bytes=len(content),
        content=content,
        backup_bytes=backup_bytes,
        reason=reason,
    )


def make_step(path: str, reason: str) -> Step:
    """Plan to create the directory of a partition.

    Raises:
        RefusedError: the path exists.
    """
    if os.path.lexists(path):
        raise RefusedError(f"{path}: is there already", next_step="name another place")
    return Step(action=Action.MAKE, path=path, before=None, reason=reason)


def splice_step(
    path: str, ranges: Sequence[LogSlice], reason: str, digest_range: Range | None = None
) -> Step:
    """Plan to fill a file with bytes of other files, or a `.log` with some of its own bytes.

    With a `digest_range`, only that range and the pieces must be readable.

    Raises:
        AccessError, RefusedError: as `inspect`.
    """
    before = inspect(path, digest_range=digest_range)
    backup_bytes = 0 if before is None else before.file_bytes
    pieces = take_pieces(ranges)
    size_bytes = pieces.total_bytes
    return Step(
        action=Action.REPLACE,
        path=path,
        before=before,
        after_bytes=size_bytes,
        content=None,
        backup_bytes=backup_bytes,
        reason=reason,
        pieces=pieces,
    )


def remove_step(path: str, reason: str) -> Step:
    """Plan to remove an existing file.

    Raises:
        AccessError, RefusedError: as `inspect`.
    """
    before = inspect(path, touched_from=None)
    if before is None:
        raise _gone(path)
    return Step(
        action=Action.REMOVE,
        path=path,
        before=before,
        after_bytes=0,
        content=None,
        backup_bytes=before.file_bytes,
        reason=reason,
    )


def _gone(path: str) -> AccessError:
    error = FileNotFoundError(2, "No such file or directory")
    return AccessError(error, path, next_step="nothing was changed; run it again")


def source_of(path: str) -> PlanSource:
    """Return the facts of a `.log` that a plan is derived from: size, time and the last MiB.

    Raises:
        AccessError, RefusedError: as `inspect`.
    """
    before = inspect(path, touched_from=None)
    if before is None:
        raise _gone(path)
    return PlanSource(path, before)


def make_plan(
    command: str,
    arguments: Mapping[str, Any],
    steps: Iterable[Step],
    price: Mapping[str, Any],
    sources: Iterable[PlanSource] = (),
) -> Plan:
    """Make a plan of steps, with the removal of the clean-shutdown markers of their log dirs first.

    Raises:
        RefusedError: a step would change files that no plan may change, such as the metadata log.
            Or a directory is a link into another log dir, or a file's owner could not be restored.
        AccessError: a marker cannot be read.
    """
    steps = list(steps)
    log_dirs = tuple(dict.fromkeys(each.log_dir for each in steps))
    markers = [
        remove_step(str(path), "a broker that finds it skips recovery")
        for path in (Path(each, CLEAN_SHUTDOWN_NAME) for each in log_dirs)
        if os.path.lexists(path)
    ]
    all_steps = (*markers, *steps)
    plan = Plan(
        plan_id=new_id(command),
        command=command,
        arguments=dict(arguments),
        log_dirs=log_dirs,
        steps=all_steps,
        price=dict(price),
        sources=(*sources,),
    )
    _require_confined(plan, "nothing was touched")
    require_in_reach(plan.directories, plan.log_dirs)
    require_owners(plan)
    new = plan.made_directories
    partitions = (each for each in plan.directories if each not in log_dirs and each not in new)
    listings = (PartitionListing(each, tuple(sorted(list_files(each)))) for each in partitions)
    return plan._replace(listings=tuple(listings))


def new_id(command: str) -> str:
    """Return an id for a plan, or for a run that appends. A command is small letters and `-`.

    Ids sort by time. The random suffix distinguishes two ids of one millisecond.
    """
    now_ms = time.time_ns() // 1_000_000
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z-{command}-{secrets.token_hex(2)}"


# --- is the plan fresh ----------------------------------------------------------------------------


def require_fresh(plan: Plan) -> None:
    """Check that all files are as the plan expects. Requires the locks.

    Raises:
        RefusedError: a file is different: the plan is stale.
        AccessError: a file cannot be read.
    """
    marked = {each.path for each in plan.steps}
    for log_dir in plan.log_dirs:
        marker = str(Path(log_dir, CLEAN_SHUTDOWN_NAME))
        if marker not in marked and os.path.lexists(marker):
            raise _stale(marker, "was not there")
    for each in plan.steps:
        if not is_still(each.path, each.before):
            what = "was not there" if each.before is None else "is not what it was"
            raise _stale(each.path, f"{what} when the plan was made")
    for source in plan.sources:
        if not is_still(source.path, source.before):
            raise _stale(source.path, "is not what it was when the plan was derived from it")
    for directory, names in plan.listings:
        now = list_files(directory)
        for name in sorted({*names} ^ now.keys()):
            what = "was not there" if name in now else "has gone since it was there"
            raise _stale(str(Path(directory, name)), f"{what} when the plan was made")


def require_owners(plan: Plan) -> None:
    """Check that undo could restore the owner of every file, also from a copy.

    Raises:
        RefusedError: it could not: only root may.
        AccessError: a directory cannot be read.
    """
    for each in plan.steps:
        if each.before is not None:
            require_own_file(each.path, each.before.uid, each.before.gid)


def _stale(path: str, what: str) -> RefusedError:
    return RefusedError(
        f"{path}: {what}: the plan is stale; nothing was changed",
        next_step="make the plan again, and read it",
    )


# --- JSON -----------------------------------------------------------------------------------------


def encode_plan(plan: Plan) -> bytes:
    """Return the file."""
    value = {
        "kind": SCHEMA.name,
        "schema_version": SCHEMA.version,
        **plan._asdict(),
        "steps": [_step_to_json(each) for each in plan.steps],
        "sources": [{"path": path, "before": before.to_json()} for path, before in plan.sources],
        "listings": [each._asdict() for each in plan.listings],
    }
    # Lone surrogates represent bytes of names that are not UTF-8. As escapes they are ASCII.
    return json.dumps(value, indent=1).encode("ascii") + b"\n"


def _step_to_json(step: Step) -> dict[str, Any]:
    value: dict[str, Any] = {"action": str(step.action), "path": step.path}
    value["before"] = None if step.before is None else step.before.to_json()
    if step.action is not Action.REMOVE:
        value["after_bytes"] = step.after_bytes
    value["backup_bytes"] = step.backup_bytes
    value["reason"] = step.reason
    if step.pieces is not None:
        value["pieces"] = step.pieces.to_json()
    if step.content is not None:
        value["content"] = base64.b64encode(zlib.compress(step.content)).decode("ascii")
    return value


def read_plan(path: str | os.PathLike[str], *, is_kept: bool = False) -> Plan:
    """Read a plan from a file, or from a pipe. A plan kept next to a journal must be a file.

    Raises:
        AccessError: it cannot be read.
        UsageError: it is not a plan.
        RefusedError: it would change files that no plan may change.
    """
    try:
        data = read_small_file(path, MAX_PLAN_BYTES) if is_kept else Path(path).read_bytes()
    except OSError as error:
        raise AccessError(error, os.fspath(path)) from error
    return parse_plan(data, os.fspath(path))


def parse_plan(data: bytes, path: str) -> Plan:
    """Parse and check the output of `encode_plan`. `path` is for error messages.

    Raises:
        UsageError, RefusedError: as `read_plan`.
    """
    try:
        value = json.loads(data)
        if value["kind"] != SCHEMA.name:
            raise UsageError(
                f"{path}: is no plan of eoctl", next_step="a file that --save-plan wrote"
            )
        if value["schema_version"] not in _READABLE_VERSIONS:
            raise UsageError(
                f"{path}: a plan of version {value['schema_version']!r}, this program knows"
                f" {SCHEMA.version}",
                next_step="carry it out with the release that made it, or make it again",
            )
        plan = Plan(
            plan_id=text_of(value["plan_id"]),
            command=text_of(value["command"]),
            arguments=plain_object(value["arguments"]),
            log_dirs=tuple(text_of(each) for each in value["log_dirs"]),
            steps=tuple(_step_of_json(each) for each in value["steps"]),
            price=plain_object(value["price"]),
            sources=tuple(
                PlanSource(text_of(each["path"]), FileFacts.from_json(each["before"]))
                for each in value["sources"]
            ),
            listings=tuple(
                PartitionListing(text_of(each["path"]), tuple(map(text_of, each["names"])))
                for each in value["listings"]
            ),
        )
    except (ValueError, TypeError, KeyError, zlib.error, RecursionError) as error:
        raise UsageError(
            f"{path}: is no plan of eoctl ({type(error).__name__}: {error})",
            next_step="a file that --save-plan wrote",
        ) from error
    _require_confined(plan, path)
    return plan


def _step_of_json(value: dict[str, Any]) -> Step:
    action = Action(value["action"])
    if action is Action.APPEND:
        raise ValueError("a plan appends nothing")
    after_bytes = number_of(value.get("after_bytes", 0))
    before = None if value["before"] is None else FileFacts.from_json(value["before"])
    content, pieces = None, None
    if action in _WITH_PIECES and "pieces" in value:
        pieces = Pieces.from_json(value["pieces"])
        if pieces.total_bytes != after_bytes:
            raise ValueError("pieces of another size than after_bytes")
    elif action is Action.REPLACE:
        content = _content(text_of(value["content"]), after_bytes)
    elif action is Action.LINK:
        raise ValueError("a link to nothing")
    if before is None and action in {Action.TRUNCATE, Action.REMOVE}:
        raise ValueError(f"{action} of a file that is not there")
    if before is not None and action in {Action.MAKE, Action.LINK}:
        raise ValueError(f"{action} of a file that exists")
    if before is not None and action is Action.TRUNCATE and after_bytes >= before.file_bytes:
        raise ValueError("a truncation that removes nothing")
    return Step(
        action=action,
        path=text_of(value["path"]),
        before=before,
        after_bytes=after_bytes,
        content=content,
        backup_bytes=number_of(value["backup_bytes"]),
        reason=text_of(value["reason"]),
        pieces=pieces,
    )


def _content(text: str, size_bytes: int) -> bytes:
    """Decompress data of the stated size, and never more."""
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(base64.b64decode(text, validate=True), size_bytes + 1)
    if len(content) != size_bytes or not decompressor.eof:
        raise ValueError("content of another size than after_bytes")
    return content


def _why_out_of_bounds(step: Step, log_dirs: Sequence[str], *, is_beginning: bool) -> str:
    if step.action is Action.MAKE:
        return why_not_made(step.path, log_dirs, is_beginning=is_beginning)
    return why_not_confined(
        step.path,
        log_dirs,
        step.content or b"",
        is_removed=step.action is Action.REMOVE,
        is_new=step.before is None,
        is_beginning=is_beginning,
    )


def _require_confined(plan: Plan, path: str) -> None:
    """Refuse paths that lead elsewhere: a plan may be untrusted."""
    if not PLAN_ID.fullmatch(plan.plan_id):
        raise RefusedError(f"{path}: its id {plan.plan_id!r} is none that eoctl gives")
    is_beginning = begins_a_log_dir(each.path for each in plan.steps)
    for each in plan.steps:
        if reason := _why_out_of_bounds(each, plan.log_dirs, is_beginning=is_beginning):
            raise RefusedError(f"{path}: a step would change {each.path}, {reason}")
        if each.pieces is not None and (reason := why_not_readable(each.pieces, each.path)):
            raise RefusedError(f"{path}: a step would write {each.path}, {reason}")
    seen = [each.path for each in plan.steps]
    if len(set(seen)) != len(seen):
        raise RefusedError(f"{path}: two steps change one file")
    is_marker = [is_clean_marker(each.path) for each in plan.steps]
    if is_marker != sorted(is_marker, reverse=True):
        raise RefusedError(f"{path}: a clean-shutdown marker does not go first")
    if plan.steps and {*plan.log_dirs} != {each.log_dir for each in plan.steps}:
        raise RefusedError(f"{path}: its log dirs differ from the log dirs of its steps")
