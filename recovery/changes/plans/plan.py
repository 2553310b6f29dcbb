"""A plan: what a changing command would do, step by step, with what it costs. A value, and JSON.

A step touches one file and carries what that file must be beforehand (`file_facts`); `apply`
refuses the plan when anything is different. Its paths may only lead to files of partitions and
to the checkpoints of the log dirs it names, so that a plan from elsewhere cannot reach further.

Format (eoctl-plan(5)): one JSON object; `content` of a step is zlib, then base64. In its place
`pieces` tell from which `.log` files of the partition the content is copied.
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

from recovery.changes.plans.confinement import (
    begins_a_log_dir,
    is_metadata,
    log_dir_of,
    require_in_reach,
    why_not_confined,
    why_not_made,
)
from recovery.changes.plans.file_facts import (
    FileFacts,
    Range,
    data_bytes_of,
    is_still,
    list_files,
    look,
    number_of,
    plain_object,
    read_chunks,
    text_of,
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


# -- new content that is put together from ranges of files of the log: what is copied as bytes
#
# A `.log` is put together from `.log` files; another file of a segment is a copy of its like.
#
# A plan holds where the bytes are and a digest of all of them, not the bytes: a replica's log may
# be as large as a disk. They are read when the step is done, and compared with the digest before
# the file gets its name.


_COPIED = LOG_FILE_KINDS - {FileKind.LEADER_EPOCHS}


class LogSlice(NamedTuple):
    """The bytes [start_pos, end_pos) of a file of the log, by its absolute path."""

    path: str
    start_pos: int
    end_pos: int


class Pieces(NamedTuple):
    """Ranges one behind the other, and the SHA-256 (hex) of all their bytes."""

    ranges: tuple[LogSlice, ...]
    sha256: str

    @property
    def total_bytes(self) -> int:
        """Size of all of it."""
        return sum(each.end_pos - each.start_pos for each in self.ranges)

    def to_json(self) -> dict[str, Any]:
        """As a plan holds it."""
        return {"ranges": [each._asdict() for each in self.ranges], "sha256": self.sha256}

    @classmethod
    def from_json(cls, value: Any) -> Pieces:
        """From what `to_json` gave; TypeError, KeyError or ValueError for anything else."""
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
    """Read all of it once, for its digest.

    Raises:
        AccessError: it cannot be read.
    """
    digest = sha256()
    for chunk in _chunks(ranges):
        digest.update(chunk)
    return Pieces(tuple(ranges), digest.hexdigest())


def read_pieces(pieces: Pieces) -> Iterator[bytes]:
    """Yield the bytes; whoever writes them has them as they were only if this comes to its end.

    Raises:
        AccessError: they cannot be read.
        RefusedError: behind the last one: they are not what the plan was made for.
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
    """Why a plan must not copy these into a file; "": it may. A plan may come from another hand."""
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
    """What a step does to its file."""

    TRUNCATE = "truncate"  # cut it in place
    REPLACE = "replace"  # give the name another content, or make a new file
    REMOVE = "remove"
    MAKE = "make"  # a directory: a partition that was not there
    LINK = "link"  # a second name for a closed segment of another directory
    APPEND = "append"  # only in the journal of a run that appends: no plan has it


class Step(NamedTuple):
    """One change of one file, or a directory that is made.

    Attributes:
        path: absolute.
        before: what it must be; None: there is none (REPLACE, and always MAKE and LINK).
        after_bytes: size afterwards, of TRUNCATE, REPLACE and LINK.
        content: of REPLACE, unless it has pieces.
        backup_bytes: so many bytes a TRUNCATE copies aside, zeros at the end left out; of a whole
            file as many as it has, and none are copied where it can be linked.
        reason: for people.
        pieces: of REPLACE: the files that its content is copied from; of LINK: all of the one.
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
        """The log dir that the file is in, or whose partition it is in."""
        return self.directory if self.action is Action.MAKE else log_dir_of(self.path)

    @property
    def directory(self) -> str:
        """The directory that holds the file."""
        return str(Path(self.path).parent)

    @property
    def after_sha256(self) -> str:
        """SHA-256 (hex) of the content of REPLACE and LINK; "" of others."""
        if self.pieces is not None:
            return self.pieces.sha256
        return "" if self.content is None else sha256(self.content).hexdigest()


class PlanSource(NamedTuple):
    """A file that no step touches, and from which the plan was derived."""

    path: str
    before: FileFacts


class PartitionListing(NamedTuple):
    """The files that a partition had, apart from those that are not Kafka's data."""

    path: str
    names: tuple[str, ...]


class Plan(NamedTuple):
    """Steps in their order.

    Attributes:
        plan_id: names the journal and the backups.
        command: which one made it.
        arguments: what was asked of it; an unfinished plan with the same ones is finished by the
            same command.
        log_dirs: absolute paths of those that are touched.
        steps: the clean-shutdown markers come first.
        price: what is lost and what follows, as names and JSON values; None is unknown.
        sources: files that must be what they were, too.
        listings: of the partitions that are touched: no file may have come or gone since.
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
        """All directories with files that are touched, each once, log dirs included."""
        return list(dict.fromkeys([*self.log_dirs, *(each.directory for each in self.steps)]))

    @property
    def made_directories(self) -> frozenset[str]:
        """Those of them that the plan makes."""
        return frozenset(each.path for each in self.steps if each.action is Action.MAKE)


SCHEMA = StateSchema(
    "eoctl-plan", 2, (Plan, Step, PlanSource, PartitionListing, FileFacts, Action, Pieces, LogSlice)
)

# Version 1 lacked the actions `make` and `link`, and was the same otherwise.
_READABLE_VERSIONS = (1, SCHEMA.version)
_WITH_PIECES = frozenset({Action.REPLACE, Action.LINK})


def absolute_path(path: str | os.PathLike[str]) -> str:
    """An absolute path without `..`; a symbolic link at its end stays one.

    The log dir of a partition is where its name is, also when that is a link to another place.
    """
    absolute = Path(path).absolute()
    return os.path.realpath(absolute) if ".." in absolute.parts else str(absolute)


# --- making one -----------------------------------------------------------------------------------


def truncate_step(path: str, after_bytes: int, reason: str) -> Step:
    """Plan to cut a file that is there.

    Raises:
        AccessError, RefusedError: as `look`.
    """
    before = look(path, touched_from=after_bytes)
    if before is None:
        raise _gone(path)
    backup_bytes = data_bytes_of(path, after_bytes, before.file_bytes)
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
    """Plan to give a name another content.

    Raises:
        AccessError, RefusedError: as `look`.
    """
    before = look(path)
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
    """Plan to make the directory of a partition.

    Raises:
        RefusedError: something has that name.
    """
    if os.path.lexists(path):
        raise RefusedError(f"{path}: is there already", next_step="name another place")
    return Step(action=Action.MAKE, path=path, before=None, reason=reason)


def splice_step(
    path: str, ranges: Sequence[LogSlice], reason: str, digest_range: Range | None = None
) -> Step:
    """Plan to give a file a content that is copied from others, or of a `.log` from itself.

    With a `digest_range` only that of it need be readable beside the pieces.

    Raises:
        AccessError, RefusedError: as `look`.
    """
    before = look(path, digest_range=digest_range)
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
    """Plan to remove a file that is there.

    Raises:
        AccessError, RefusedError: as `look`.
    """
    before = look(path, touched_from=None)
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
    """Take note of a `.log` that a plan is derived from: size, time and the last MiB.

    Raises:
        AccessError, RefusedError: as `look`.
    """
    before = look(path, touched_from=None)
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
    """Put steps together; the clean-shutdown markers of their log dirs are added in front.

    Raises:
        RefusedError: a step would change what no plan may, such as the metadata log, a directory
            is a link into another log dir, or a file has an owner that could not be given back.
        AccessError: a marker cannot be looked at.
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
    """Name a plan, or a run that appends: one word of small letters and `-`.

    Sorts by time; the random part keeps two of one millisecond apart.
    """
    now_ms = time.time_ns() // 1_000_000
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z-{command}-{secrets.token_hex(2)}"


# --- is it still true -----------------------------------------------------------------------------


def require_fresh(plan: Plan) -> None:
    """Make sure that all files are what the plan was made for; call it with the locks held.

    Raises:
        RefusedError: one is not: the plan is stale.
        AccessError: one cannot be looked at.
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
    """Make sure that undo could give every file its owner back, also from a copy.

    Raises:
        RefusedError: it could not: only root may.
        AccessError: a directory cannot be looked at.
    """
    for each in plan.steps:
        if each.before is not None:
            require_own_file(each.path, each.before.uid, each.before.gid)


def _stale(path: str, what: str) -> RefusedError:
    return RefusedError(
        f"{path}: {what}: the plan is stale; nothing was changed",
        next_step="make the plan anew, and read it",
    )


# --- JSON -----------------------------------------------------------------------------------------


def encode_plan(plan: Plan) -> bytes:
    """The file."""
    value = {
        "kind": SCHEMA.name,
        "schema_version": SCHEMA.version,
        **plan._asdict(),
        "steps": [_step_to_json(each) for each in plan.steps],
        "sources": [{"path": path, "before": before.to_json()} for path, before in plan.sources],
        "listings": [each._asdict() for each in plan.listings],
    }
    # Lone surrogates stand for bytes of names that are not UTF-8; as escapes they are ASCII.
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
    """Read a plan from a file, or from a pipe; the one that is kept beside a journal is a file.

    Raises:
        AccessError: it cannot be read.
        UsageError: it is no plan.
        RefusedError: it would change what no plan may.
    """
    try:
        data = read_small_file(path, MAX_PLAN_BYTES) if is_kept else Path(path).read_bytes()
    except OSError as error:
        raise AccessError(error, os.fspath(path)) from error
    return parse_plan(data, os.fspath(path))


def parse_plan(data: bytes, path: str) -> Plan:
    """Parse and check what `encode_plan` gave; `path` is for the errors.

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
                next_step="carry it out with the release that made it, or make it anew",
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
    """Decompress what must have that size, and no more of it."""
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
    """Refuse paths that lead elsewhere; a plan may come from another hand."""
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
