"""`check --predict` of a crashed log dir against what a real broker's start has made of it.

The golden directories hold both: what a kill left, and the same after a start and a clean stop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# What goes on being written, or is not foretold of a stop.
UNREPORTED = ("__cluster_metadata-0/", ".kafka_cleanshutdown", ".lock", "cleaner-offset-checkpoint")
PAIRS = [
    ("kafka-4.3.1", "crash", "clean", ()),
    ("kafka-4.3.1", "tv2", "tv2-clean", ()),
    # Its coordinator has aborted two transactions there once it ran.
    ("kafka-4.3.1", "hard", "hard-clean", ("txn-", "__", "recovery-", "replication-", "log-start")),
    ("kafka-4.3.1-tiered", "crash", "clean", ()),
]


def contents(directory: Path, unreported: tuple[str, ...]) -> dict[str, bytes]:
    """Every file; checkpoints without the order of their lines."""
    found = {}
    for path in directory.rglob("*"):
        name = str(path.relative_to(directory))
        if path.is_file() and not name.startswith(unreported):
            data = path.read_bytes()
            is_checkpoint = name.endswith("-offset-checkpoint")
            found[name] = b"\n".join(sorted(data.splitlines())) if is_checkpoint else data
    return found


@pytest.mark.share(2)
@pytest.mark.parametrize(("archive", "crashed", "started", "unreported"), PAIRS)
def test_what_a_real_start_changed_was_foretold(
    golden: Callable[[str], Path],
    eoctl: Callable[..., Any],
    archive: str,
    crashed: str,
    started: str,
    unreported: tuple[str, ...],
) -> None:
    directory, result = golden(archive) / crashed, golden(archive) / started
    unreported += UNREPORTED
    before, after = contents(directory, unreported), contents(result, unreported)
    # The start was then: it wrote these when it had loaded the logs.
    now_ms = (result / "recovery-point-offset-checkpoint").stat().st_mtime_ns // 1_000_000
    outcome = eoctl("check", "--predict", "--now", now_ms, "--output", "jsonl", directory)
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    reported = {
        str(Path(each["path"]).relative_to(directory)): each["action"]
        for each in rows
        if each["kind"] == "start_change"
    }
    changed = {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
    assert {each for each in reported if not each.startswith(unreported)} == changed
    assert {each for each in changed if each not in before} == {
        each
        for each, action in reported.items()
        if action == "creates" and not each.startswith(unreported)
    }
    assert len(changed) > 10
