"""`eoctl check` on log dirs of real brokers with one kind of damage each: it finds that, and no other.

The faults are in tests/damage/planted, which imports nothing of ours.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.damage.planted import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Expected, Fault


def findings(
    eoctl: Callable[..., Any], log_dir: Path, fault: Fault, *, beside: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """What a check of the log dir finds; paths are made relative to it."""
    paths: list[object] = [log_dir]
    if beside:
        dirs = ",".join(str(log_dir.with_name(name)) for name in (log_dir.name, *beside))
        properties = log_dir.with_name("server.properties")
        properties.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={dirs}\n")
        paths = ["--server-properties", properties]
    flags = ["--now", "dir", "--output", "jsonl", *(["--deep"] if fault.deep else [])]
    outcome = eoctl("check", *flags, *paths)
    assert outcome.status in {0, 1}, outcome.errors
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    rows = [row for row in rows if row["kind"] == "finding"]
    for row in rows:
        row["path"] = os.path.relpath(log_dir / row["path"], log_dir)
    return rows


def is_found(row: dict[str, Any], expected: Expected) -> bool:
    return (
        row["check_id"] == expected.check_id
        and row["path"] == (expected.path or ".")
        and expected.start_pos in {None, row["start_pos"]}
        and expected.severity in {None, row["severity"]}
    )


def grave(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["severity"] != "note"]


def brief(rows: list[dict[str, Any]]) -> str:
    keys = ("check_id", "severity", "path", "start_pos", "message")
    return "\n".join(" | ".join(str(row[key]) for key in keys) for row in rows) or "nothing"


@pytest.fixture(scope="module")
def undamaged() -> dict[tuple[str, tuple[str, ...], bool], list[dict[str, Any]]]:
    """What was found in copies before anything was planted."""
    return {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(
    fault: Fault,
    eoctl: Callable[..., Any],
    copied: Callable[[Fault], Path],
    undamaged: dict[tuple[str, tuple[str, ...], bool], list[dict[str, Any]]],
) -> None:
    """It is found where it is, with its severity, and nothing else but what it may bring."""
    log_dir = copied(fault)
    key = (fault.state, fault.partitions, fault.deep)
    if key not in undamaged:
        undamaged[key] = findings(eoctl, log_dir, fault)
    before = undamaged[key]
    assert not grave(before), brief(grave(before))

    expected = fault.planted_in(log_dir)
    assert [each for each in expected if any(is_found(row, each) for row in before)] == []
    after = findings(eoctl, log_dir, fault, beside=fault.beside)
    missing = [each for each in expected if not any(is_found(row, each) for row in after)]
    assert missing == [], brief([row for row in after if row not in before])
    allowed = {each.check_id for each in expected} | fault.closure
    others = [row for row in grave(after) if row["check_id"] not in allowed]
    assert others == [], brief(others)
    assert fault.closure <= {row["check_id"] for row in grave(after)}, "it brings less with it"
