"""What docs/automation.md says to programs: rows, messages, exit statuses, manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from storage import errors
from tests.row_schemas import SAVED, schemas, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "automation.md"
CALLS = (
    ("check", "crash"),
    ("check", "hard", "--predict"),
    ("describe", "hard"),
    ("describe", "hard/txn-0"),
    ("loss", "hard"),
    ("diff", "crash", "recovered"),
    ("duplicates", "hard"),
    ("txn", "list", "hard", "--all"),
    ("txn", "hanging", "hard"),
    ("txn", "stats", "hard"),
    ("groups", "list", "crash"),
    ("groups", "describe", "crash"),
    ("metadata", "crash"),
    ("locate", "hard/txn-0", "--offset", "10"),
    ("recover-state", "hard/txn-0"),
    ("rebuild", "crash"),
    ("truncate", "clean/txn-0", "--to-offset", "10", "--single-copy"),
    ("reclaim", "hard", "--class", "A,D,E"),
    ("trim", "clean/rolled-0", "--to-offset", "35"),
    ("repair", "hard", "--single-copy"),
    ("metadata", "crash", "--history"),
    ("txn", "torn", "hard"),
    ("txn", "describe", "crash", "--producer-id", "40"),
    ("txn", "complete", "crash", "--now", "2026-11-22T03:00:00Z", "--single-copy"),
    ("copy", "clean/plain-0", "crash/plain-0", "--single-copy"),
    ("groups", "export", "crash"),
    ("consume", "clean/plain-0"),
    ("consume", "clean", "--topic", "txn"),
    ("serve", "clean", "--for-seconds", "0"),
    ("dump-segment", "clean/txn-0", "clean/compacted-0", "--deep-iteration"),
    ("dump-segment", "hard/txn-0", "hard/__cluster_metadata-0", "--print-data-log"),
    ("dump-segment", "clean/meta.properties", "clean/.kafka_cleanshutdown"),
    ("spark-audit", "hard", "--report", "all", "--engine", "local"),
    ("sim", "scripts"),
    ("sim", "table"),
)
UNSEEN_HERE = {"price"}  # of a plan: a field per question, which its man page describes


def checker(name: str) -> Any:
    document = {**schemas(), "$ref": f"#/$defs/{name}"}
    return jsonschema.Draft202012Validator(document)


def test_the_saved_schemas() -> None:
    """Else: python -m tests.row_schemas."""
    jsonschema.Draft202012Validator.check_schema(schemas())
    assert SAVED.read_text() == text_of(schemas())
    assert json.loads(SAVED.read_text()) == schemas()


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_rows_and_messages(
    call: tuple[str, ...], golden: Callable[[str], Path], eoctl: Callable
) -> None:
    """Each row of a real directory has a schema and keeps it; so has each message."""
    root = golden("kafka-4.3.1")
    words = [str(root / word) if (root / word).exists() else word for word in call]
    outcome = eoctl(*words, "--output", "jsonl")
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert rows
    command = "-".join(call[:2]) if call[0] in ("txn", "groups", "sim") else call[0]
    command += "-history" if "--history" in call else ""
    kinds = [each.get("kind", "record") for each in rows]
    checkers = {each: checker(f"{command}.{each}") for each in {*kinds} - UNSEEN_HERE}
    for kind, row in zip(kinds, rows, strict=True):
        if kind not in UNSEEN_HERE:
            checkers[kind].validate(row)
    for line in outcome.errors.splitlines():
        checker("message").validate(json.loads(line))


def test_an_unknown_field_is_refused(golden: Callable[[str], Path], eoctl: Callable) -> None:
    outcome = eoctl("describe", str(golden("kafka-4.3.1") / "hard"), "--output", "jsonl")
    row = json.loads(outcome.stdout.splitlines()[0])
    known = checker("describe.partition")
    assert known.is_valid(row)
    assert not known.is_valid({**row, "log_end_offset": "329"})
    assert not known.is_valid({**row, "other": 1})
    assert not known.is_valid({name: row[name] for name in row if name != "log_end_offset"})


def test_exit_statuses() -> None:
    table = {int(each) for each in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)}
    assert table == {value for name, value in vars(errors).items() if name.startswith("EXIT_")}


def test_the_manifest() -> None:
    """The Job is valid by Kubernetes' own schemas, to the last field."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (job,) = [each for each in map(yaml.safe_load, blocks) if each.get("kind") == "Job"]
    kubernetes_validate.validate(job, "1.30", strict=True)
    job["spec"]["template"]["spec"]["volume"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.30", strict=True)


def test_alerts_name_metrics_that_are_written(
    golden: Callable[[str], Path], eoctl: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "eoctl.prom"
    eoctl("check", str(golden("kafka-4.3.1") / "crash"), "--metrics", str(path))
    named = set(re.findall(r"\beoctl_\w+", PAGE.read_text()))
    assert named
    assert named <= set(re.findall(r"^(eoctl_\w+)", path.read_text(), re.MULTILINE))
