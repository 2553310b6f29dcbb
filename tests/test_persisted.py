"""What outlives a run: its fields beside its version, and what damage to it may do: nothing.

A file that this program keeps may be of an older or newer release, cut short, or changed by a bad
disk. Then it is read again (what can be found again), or refused with its path and what to do.
"""

from __future__ import annotations

import importlib
import json
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest

from recovery.rules.findings import Severity
from storage.dirs.state_file import StateFile, StateSchema, read_as
from storage.errors import UsageError

ROOT = Path(__file__).parents[1]
LISTING = Path(__file__).with_name("persisted_schemas.json")


def _schemas() -> dict[str, StateSchema]:
    """Every schema of the program, by its name: modules with `= StateSchema(` are asked."""
    found: dict[str, StateSchema] = {}
    for package in ("eoctl", "recovery", "storage"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if not re.search(r"^\w+ = StateSchema\(", path.read_text(), re.MULTILINE):
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for each in vars(module).values():
                if isinstance(each, StateSchema):
                    assert found.setdefault(each.name, each) is each, each.name
    return found


def test_fields_change_with_their_version_only() -> None:
    """To change a schema: another version beside it, then its fields and version anew here."""
    known = json.loads(LISTING.read_text())
    found = {
        name: {"version": each.version, "fields": each.fields()}
        for name, each in _schemas().items()
    }
    for name, each in found.items():
        before = known.get(name)
        if before is not None and before["fields"] != each["fields"]:
            assert each["version"] > before["version"], f"{name}: other fields, the same version"
    assert found == known, f"write {LISTING.name} anew: {json.dumps(found, indent=1)}"


def test_schemas_know_the_types_within() -> None:
    fields = _schemas()["eoctl-check-state"].fields()
    assert {
        "KnownDirectory",
        "CheckResult",
        "Finding",
        "Severity",
        "PartitionRow",
        "StartChange",
    } <= {*fields}
    assert fields["Severity"] == "error | warning | note"
    assert "start_offset int" in _schemas()["eoctl producer session"].fields()["SessionPartition"]


# --- plain values as typed ones -------------------------------------------------------------------


class Inner(NamedTuple):
    name: str
    count: int | None = None


class Outer(NamedTuple):
    inner: Inner
    many: tuple[Inner, ...]
    named: dict[str, int]
    pair: tuple[int, str]
    severity: Severity
    anything: Any
    is_done: bool
    data: bytes


OUTER = Outer(Inner("a"), (Inner("b", 2),), {"x": 1}, (1, "y"), Severity.NOTE, [1], True, b"z")


def test_values_come_back_as_what_they_were() -> None:
    packed = msgpack.unpackb(msgpack.packb(OUTER))
    assert read_as(Outer, packed) == OUTER
    assert type(read_as(Outer, packed).severity) is Severity
    by_name = {**OUTER._asdict(), "inner": OUTER.inner._asdict()}
    assert read_as(Outer, by_name) == OUTER


@pytest.mark.parametrize("place", range(len(OUTER)))
def test_a_value_of_another_type_is_an_error(place: int) -> None:
    values = list(msgpack.unpackb(msgpack.packb(OUTER)))
    for wrong in (1.5, [[]], {"x": "y"}, ["a"], None):
        values[place] = wrong
        if Outer._fields[place] == "anything":
            assert read_as(Outer, values).anything == wrong
            continue
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind
            read_as(Outer, values)
    for short in (values[:-1], [*values, 1], {}, None, 3):
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind
            read_as(Outer, short)


# --- what is read again ---------------------------------------------------------------------------

SCHEMA = StateSchema("a-kind-of-state", 3, (Inner,))


def _state(path: Path, version: int = 3, program: str = "this") -> StateFile:
    return StateFile(SCHEMA._replace(version=version), "a state", str(path), program)


def test_a_state_of_another_release_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    _state(path).save([Inner("a", 1), Inner("b")])
    assert _state(path).load(Inner) == [Inner("a", 1), Inner("b")]
    for other in (_state(path, version=2), _state(path, version=4), _state(path, program="next")):
        assert other.load(Inner) == []
        assert "version 3 of this: not used" in other.notes[0]
    path.write_bytes(zlib.compress(msgpack.packb(["another kind", 3, "this", []])))
    with pytest.raises(UsageError):
        _state(path).load(Inner)
    damaged = _state(path)
    path.write_bytes(zlib.compress(msgpack.packb([SCHEMA.name, 3, "this", [["a"]]])))
    assert damaged.load(Inner) == []
    assert "damaged" in damaged.notes[0]


def test_names_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    _state(tmp_path / "state").save([Inner(name)])
    assert _state(tmp_path / "state").load(Inner) == [Inner(name)]
