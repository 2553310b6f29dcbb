"""Courses of events in files: what `cluster explore` writes, and scripts that are shipped.

JSON: name and version of the schema, what the cluster is, how it is run, the faults one a line,
what `cluster check` finds in the end, and the digest of the history, by which a release knows that
it has played the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.cluster.faults.language import parse_faults
from eoctl.cluster.world.settings import PlaySettings, RunSettings, problem_of
from storage.dirs.state_file import StateSchema, read_as
from storage.errors import RefusedError, UsageError
from storage.files import fsio
from storage.files.file_attributes import FileAttributes
from storage.files.fsio import FileSystem
from storage.files.small_file import read_small_file
from storage.os_errors import os_errors
from storage.shell_words import pasted

if TYPE_CHECKING:
    from eoctl.cluster.guarantees.course import Course

MAX_FILE_BYTES = 1 << 20
SCRIPTS = Path(__file__).with_name("scripts")


class SavedCourse(NamedTuple):
    """A course of events that can be repeated.

    Attributes:
        run: without the faults.
        kinds: of findings.
        digest: of the history; "" it is not known.
    """

    title: str
    settings: PlaySettings
    run: RunSettings
    faults: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    digest: str = ""

    @property
    def whole_run(self) -> RunSettings:
        """With its faults."""
        return self.run._replace(faults=", ".join(self.faults))


SCHEMA = StateSchema("eoctl course", 5, (SavedCourse, PlaySettings, RunSettings))


# Of each earlier version, what every run or cluster was that said nothing of it.
EARLIER: dict[int, tuple[str, dict[str, Any]]] = {
    2: ("run", {"consumer_commit": "none"}),
    3: (
        "run",
        {
            "transaction_records": 0,
            "abort_every": 0,
            "transaction_timeout_ms": 60_000,
            "isolation": "read_committed",
        },
    ),
    4: ("settings", {"fetch_min_bytes": 1, "fetch_wait_max_ms": 500}),
}


_PARTS = ("settings", "run")


def saved(settings: PlaySettings, course: Course, title: str) -> SavedCourse:
    """A course as it is saved."""
    faults = tuple(each for each in course.run.faults.split(", ") if each)
    return SavedCourse(
        title=title,
        settings=settings,
        run=course.run._replace(faults=""),
        faults=faults,
        kinds=tuple(sorted(course.kinds)),
        digest=course.result.digest,
    )


def encode_course(course: SavedCourse) -> bytes:
    """Write it as JSON."""
    value: dict[str, Any] = {"schema": SCHEMA.name, "version": SCHEMA.version}
    value |= course._asdict()
    value["settings"] = course.settings._asdict()
    value["run"] = course.run._asdict()
    return json.dumps(value, indent=1).encode() + b"\n"


def require_new(path: str) -> None:
    """Raises RefusedError: there is something already, or no place for it."""
    place = Path(path)
    if os.path.lexists(path):
        raise RefusedError(
            f"{path}: is there already; nothing was touched",
            next_step="name a file that is not there yet",
        )
    if not place.parent.is_dir():
        parent = str(place.parent)
        if os.path.lexists(parent):
            raise RefusedError(f"{path}: {parent} is no directory", next_step="name another file")
        raise RefusedError(
            f"{path}: there is no directory {parent}", next_step=f"mkdir -p {pasted(parent)}"
        )


def save_course(path: str, course: SavedCourse) -> None:
    """Write a file that is not there yet, in one step. Raises AccessError."""
    attributes = FileAttributes(os.geteuid(), os.getegid(), 0o644)
    fsio.replace_file(FileSystem(), path, encode_course(course), attributes=attributes)


def load_course(path: str) -> SavedCourse:
    """Read a file.

    Raises:
        RefusedError: it is none, or of another release.
        AccessError: it cannot be read.
    """
    with os_errors(path):
        data = read_small_file(path, MAX_FILE_BYTES)
    return parse_course(data, path)


def parse_course(data: bytes, path: str) -> SavedCourse:
    """Read what `encode_course` wrote. RefusedError: it is none, or of another release."""
    value = _parse_json(data, path)
    try:
        schema, version = value.pop("schema"), value.pop("version")
    except (KeyError, TypeError, AttributeError):
        schema = version = None
    if schema != SCHEMA.name:
        raise _refused(f"{path}: is no course of events that eoctl cluster saved")
    if version in EARLIER and all(isinstance(value.get(each), dict) for each in _PARTS):
        for each in range(version, SCHEMA.version):
            part, said = EARLIER[each]
            value[part] = said | value[part]
        version = SCHEMA.version
    if version != SCHEMA.version:
        raise _refused(
            f"{path}: a course of version {version}; version {SCHEMA.version} is read here"
        )
    _require_types(value, path)
    try:
        course = read_as(SavedCourse, value)
    except ValueError as error:
        raise _refused(f"{path}: is damaged: {error}") from None
    problem = problem_of(course.settings) or problem_of(course.run)
    if problem:
        raise _refused(f"{path}: {problem}")
    for number, fault in enumerate(course.faults, 1):
        try:
            parse_faults(fault, course.settings.nodes, course.run.clients)
        except UsageError as error:
            words = str(error).removeprefix("--faults: ")
            raise RefusedError(
                f"{path}: fault {number}: {words}", next_step=error.next_step
            ) from None
    return course


def _refused(words: str) -> RefusedError:
    step = "write one with --witness FILE of eoctl cluster explore, or of table"
    return RefusedError(words, next_step=step)


def _parse_json(data: bytes, path: str) -> Any:
    """Read JSON. Raises RefusedError."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise _refused(f"{path}: line {error.lineno}: no JSON ({error.msg})") from None
    except (ValueError, RecursionError):
        raise _refused(f"{path}: is no course of events that eoctl cluster saved") from None


def _require_types(value: dict[str, Any], path: str) -> None:
    """Say which setting is of another type. Raises RefusedError."""
    for name, kind in (("settings", PlaySettings), ("run", RunSettings)):
        given = value.get(name)
        if not isinstance(given, dict):
            continue
        for field, default in kind._field_defaults.items():
            if field in given and type(given[field]) is not type(default):
                words = f"{str(given[field])[:40]!r} is no {type(default).__name__}"
                raise _refused(f"{path}: {name}.{field}: {words}")


def script_names() -> list[str]:
    """The scripts that are shipped."""
    return sorted(each.stem for each in SCRIPTS.glob("*.json"))


def load_script(name: str) -> SavedCourse:
    """Read one of them. UsageError: there is none of this name."""
    if name not in script_names():
        raise UsageError(
            f"--script {name}: there is none of that name",
            next_step=f"one of {', '.join(script_names())}: eoctl cluster scripts",
        )
    return load_course(str(SCRIPTS / f"{name}.json"))
