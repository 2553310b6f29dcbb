"""Real directories, as brokers left them, give no finding but those that were planted there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.clock import resolve_now
from recovery.checks.partition_check import CheckOptions
from recovery.cluster.clusters import Clusters
from recovery.fsck.one_pass import CheckJob, CheckResult, check_one
from recovery.start.files import StartAction
from storage.dirs.discovery import discover

if TYPE_CHECKING:
    from collections.abc import Callable

# State, and how often each rule is broken with each severity there. All are facts of the
# directories: open-1 and open-2 were open when the broker was killed; three logs of `hard` were
# made with open transactions and offset gaps, and with producers that had expired.
# Two log dirs of a node that was stopped cleanly, while it was deleting a topic.
RELEASES = ("1.1.1", "2.8.2", "3.3.2", "3.9.1", "4.3.1-two-dirs")
OPEN = {("TXO-1", "note"): 2}
PLANTED = {("SEG-4", "error"): 9, ("TXO-2", "note"): 7}
EXPECTED: dict[str, dict[tuple[str, str], int]] = {
    "kafka-4.3.1/crash": OPEN,
    "kafka-4.3.1/recovered": OPEN,
    "kafka-4.3.1/clean": OPEN,
    # Its replaced logs came without indexes, which the broker then made.
    "kafka-4.3.1/hard": {
        **PLANTED,
        ("TXO-1", "warning"): 3,
        ("TXO-1", "note"): 103,
        ("SEG-8", "note"): 20,
        ("TXI-4", "note"): 170,
    },
    "kafka-4.3.1/hard-clean": {
        **PLANTED,
        ("TXO-1", "warning"): 104,
        ("SNP-6", "note"): 4,
    },
    "kafka-4.3.1/tv2": {},
    "kafka-4.3.1/tv2-clean": {},
    "kafka-4.3.1-three-brokers/diverged/broker-1": {("TXO-2", "note"): 1},
    "kafka-4.3.1-three-brokers/diverged/broker-2": {},
    "kafka-4.3.1-three-brokers/diverged/broker-3": {},
    "kafka-4.3.1-three-brokers/after/broker-1": {},
    "kafka-4.3.1-three-brokers/after/broker-2": {},
    "kafka-4.3.1-three-brokers/after/broker-3": {},
    "kafka-0.10.2-legacy": {},
    **{f"kafka-{name}/": {} for name in RELEASES},
    # The indexes of its metadata log are not trimmed at a clean stop.
    **{f"kafka-4.4.0/{state}": {("TXO-1", "note"): 1} for state in ("killed", "clean")},
}
# A start, and what it left: apart from what was written afterwards.
STARTS = [("crash", "clean"), ("hard", "hard-clean"), ("tv2", "tv2-clean")]


def check(root: Path, *, deep: bool = False) -> list[CheckResult]:
    log_dirs = [root] if (root / "meta.properties").exists() else sorted(root.iterdir())
    found = discover(log_dirs)
    clusters = Clusters(found.log_dirs)
    moment = resolve_now("dir", log_dirs)
    return [
        check_one(
            CheckJob(each, clusters.image_for(each.log_dir), CheckOptions(moment.ms, deep=deep))
        )
        for each in found.selected
    ]


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("deep", [False, True])
def test_real_directories(golden: Callable[[str], Path], name: str, *, deep: bool) -> None:
    archive, _, state = name.partition("/")
    results = check(golden(archive) / state, deep=deep)
    counts = Counter((each.check_id, str(each.severity)) for r in results for each in r.findings)
    assert counts == EXPECTED[name]
    problems = [problem for each in results for problem in each.problems]
    # A marker may have been in the gaps that one log of `hard` was made with.
    assert bool(problems) is ("hard" in name)
    assert all("unknown outcome of a transaction" in each for each in problems)


@pytest.mark.parametrize(("before", "after"), STARTS)
def test_the_start_after_a_crash_is_predicted(
    golden: Callable[[str], Path], before: str, after: str
) -> None:
    """Names and sizes of the files, and log ends, apart from logs that grew in the next run."""
    compared = 0
    for result in check(golden("kafka-4.3.1") / before):
        was = Path(result.row.path)
        now = golden("kafka-4.3.1") / after / was.name
        changes = {Path(each.path).name: each for each in result.changes}
        logs_now = {each.name: each.stat().st_size for each in now.glob("*.log")}
        logs_before = {each.name: each.stat().st_size for each in was.glob("*.log")}
        for name, size in logs_before.items():
            change = changes.get(name)
            if change is not None and change.action is StartAction.DELETES:
                assert name not in logs_now
                continue
            cut_bytes = None if change is None else change.size_bytes
            expected_bytes = size if cut_bytes is None else cut_bytes
            if logs_now.get(name, -1) > expected_bytes:
                break  # the next run appended to it
            assert logs_now[name] == expected_bytes, name
        else:
            compared += 1
            assert _snapshot_names(was, changes) <= {each.name for each in now.iterdir()}
            if result.row.start_end_offset:
                assert (now / f"{result.row.start_end_offset:020d}.snapshot").exists()
        for name, change in changes.items():
            if change.action is StartAction.DELETES and name.endswith(".deleted"):
                assert not (now / name).exists()
    assert compared > 15


def _snapshot_names(directory: Path, changes: dict[str, object]) -> set[str]:
    return {each.name for each in directory.glob("*.snapshot")} - set(changes)


def test_a_clean_start_changes_nothing(golden: Callable[[str], Path]) -> None:
    for result in check(golden("kafka-4.3.1") / "clean"):
        # The metadata log is recovered at every start.
        if result.row.topic != "__cluster_metadata":
            assert (result.changes, result.row.recovered_bytes) == ((), 0)
        assert result.row.start_end_offset == result.row.end_offset
