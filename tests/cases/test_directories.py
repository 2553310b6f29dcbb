"""Directories with a suffix: what `check` says of them, and what other commands make of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases.files import HandLogDir, singles
from tests.cases.states import ID

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEM = f"{0:020d}"


def findings_of(outcome: Any, path: Path) -> list[tuple[str, str, str]]:
    """Rule, severity and action of each finding in a directory."""
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [
        (each["check_id"], each["severity"], each["broker_action"])
        for each in rows
        if each["kind"] == "finding" and each["path"].startswith(str(path))
    ]


@pytest.mark.parametrize("state", ["future", "stray", "delete"])
def test_a_directory_with_a_suffix_owes_nothing_to_the_lines_of_the_live_one(
    tmp_path: Path, eoctl: Callable[..., Any], state: str
) -> None:
    """Its log ends far below the checkpointed high watermark, and begins below the log start."""
    made = HandLogDir(tmp_path)
    made.epochs()
    beside = made.path / f"t-0.{ID}-{state}"
    shutil.copytree(made.path / "t-0", beside)
    (beside / f"{STEM}.log").write_bytes(b"".join(singles(0, 2)))
    (beside / f"{STEM}.timeindex").write_bytes(b"")
    made.closed(singles(0, 30), 30)
    made.checkpoints(log_start=20)
    made.crash()
    outcome = eoctl("check", "--output", "jsonl", made.path)
    rules = {rule for rule, _, _ in findings_of(outcome, made.path)}
    assert rules <= {"DIR-6"}


@pytest.mark.parametrize(
    "left",
    [
        (f"{5:020d}.index",),
        (f"{5:020d}.log",),
        (f"{5:020d}.log", f"{9:020d}.timeindex", f"{9:020d}.snapshot"),
        ("leader-epoch-checkpoint",),
        (),
    ],
)
def test_half_a_delete_directory_is_a_note(
    tmp_path: Path, eoctl: Callable[..., Any], left: tuple[str, ...]
) -> None:
    made = HandLogDir(tmp_path)
    made.closed(singles(0, 30), 30)
    beside = made.path / f"gone-0.{ID}-delete"
    beside.mkdir()
    for name in left:
        (beside / name).write_bytes(b"".join(singles(5, 9)) if name.endswith(".log") else b"")
    outcome = eoctl("check", "--output", "jsonl", made.path)
    assert outcome.status == 0
    assert {severity for _, severity, _ in findings_of(outcome, made.path)} == {"note"}


def test_a_foreign_name_in_a_delete_directory_keeps_a_broker_from_starting(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("delete-dir-half-gone")
    (beside,) = made.glob("*-delete")
    (beside / "abc.snapshot").touch()
    outcome = eoctl("check", "--output", "jsonl", made)
    assert outcome.status == 1
    assert ("DIR-9", "error", "refuses to start") in findings_of(outcome, beside)


def test_an_unknown_metadata_record_is_the_end_of_a_start(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("unknown-metadata-record")
    outcome = eoctl("check", "--output", "jsonl", made)
    assert outcome.status == 1
    assert findings_of(outcome, made) == [
        ("KRF-4", "error", "cannot load the cluster's metadata, and stops")
    ]
    assert eoctl("describe", made).status == 5
    assert eoctl("cluster-state", made).status == 5


def test_another_node_id_than_the_configured_one(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("node-id-mismatch")
    properties = made.parent / "server.properties"
    outcome = eoctl("check", "--output", "jsonl", "--server-properties", properties)
    assert outcome.status == 1
    assert findings_of(outcome, made) == [("DIR-3", "error", "refuses to start")]


def test_one_node_id_in_two_clusters_is_a_warning(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("cluster-id-two-dirs")
    outcome = eoctl("check", "--output", "jsonl", made / "one", made / "two")
    assert outcome.status == 1
    action = "refuses to start if both log dirs belong to one node"
    assert ("DIR-3", "warning", action) in findings_of(outcome, made / "two")
