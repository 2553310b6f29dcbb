"""`eoctl releases`: what is told of real directories, and of made ones that are in between."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from recovery.checks.context.broker_version import FEATURES, LINES, METADATA_VERSION
from storage.formats import cluster_metadata as records
from tests.changes import rows_of
from tests.metadata_logs import batch, level

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Golden = Callable[[str], Path]

ALL = [f"{major}.{minor}" for major, minor in LINES]
# Golden directories -> the releases of which brokers started there, and what another one died of.
STARTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "kafka-3.3.2 one two": (
        ALL[ALL.index("3.3") : ALL.index("4.1")],
        {"3.2": "FEATURE_LEVEL_RECORD version 0", "4.1": "segment.bytes=4096 of compacted"},
    ),
    "kafka-3.9.1 one two": (
        ["3.9", "4.0"],
        {"3.8": "metadata.version 21", "4.4": "segment.bytes=4096 of compacted"},
    ),
    "kafka-4.3.1-two-dirs one two": (["4.3", "4.4"], {"4.2": "metadata.version 30"}),
    "kafka-4.4.0 clean/one clean/two": (
        ["4.4"],
        {"4.3": "metadata.version 33", "3.7": "KRAFT_VERSION record", "2.8": "frame version 1"},
    ),
    "kafka-2.8.2 one two": (
        ALL[: ALL.index("4.0")],
        {"4.0": "a log dir of a broker with ZooKeeper"},
    ),
}


def reported(eoctl: Cli, *arguments: object) -> tuple[dict[str, dict[str, Any]], Outcome]:
    outcome = eoctl("releases", *arguments, "--output", "jsonl")
    return {row["release"]: row for row in rows_of(outcome, "release")}, outcome


@pytest.mark.parametrize("place", STARTS)
def test_real_directories(place: str, golden: Golden, eoctl: Cli) -> None:
    """As brokers of 3.3 to 4.4 did, in `tests/broker/test_releases.py`."""
    archive, *names = place.split()
    rows, outcome = reported(eoctl, *(golden(archive) / each for each in names))
    starts, reasons = STARTS[place]
    assert [each for each in ALL if rows[each]["starts"] == "yes"] == starts
    assert [*rows] == ALL
    for release, reason in reasons.items():
        assert rows[release]["reason"].startswith(reason)
        assert rows[release]["starts"] == "no"
    assert outcome.status == 0


@pytest.mark.share(4)
@pytest.mark.parametrize("release", ALL)
@pytest.mark.parametrize("made_for", ["3.3", "3.9", "4.3", "4.4"])
def test_check_says_the_same_of_new_log_dirs(
    made_for: str, release: str, eoctl: Cli, tmp_path: Path
) -> None:
    """Brokers judge what `releases` says of them, in `tests/broker/test_releases.py`."""
    made = eoctl(
        "init", tmp_path / "made", "--topic", "t", "--no-internal-topics", "--broker-version",
        made_for, "--apply",
    )  # fmt: skip
    assert made.status == 0, made.errors
    rows, _ = reported(eoctl, tmp_path / "made")
    checked = eoctl("check", tmp_path / "made", "--broker-version", release)
    will = "will start" if rows[release]["starts"] == "yes" else "will NOT start"
    assert f"Start   Kafka {release} {will}" in checked.errors, rows[release]
    drops = "all topics in it" in rows[release]["drops"]
    assert ("begins a new cluster, which does not have this topic" in checked.text) is drops
    if release != "2.8":  # it does not look for directories without a topic
        removed = re.search("(?:sets aside|deletes) t-0", checked.errors)
        assert (removed is not None) is drops, checked.errors


def test_a_release_that_begins_anew(eoctl: Cli, tmp_path: Path) -> None:
    """4.3 does not read the snapshot that 4.4 begins with; a real one set all partitions aside."""
    assert eoctl("init", tmp_path / "made", "--topic", "t", "--apply").status == 0
    checked = eoctl("check", tmp_path / "made", "--broker-version", "4.3", "--predict")
    assert checked.status == 1
    assert "does not read the snapshot that the cluster begins with" in checked.text
    assert "renames the directory to -stray" in checked.text
    assert eoctl("check", tmp_path / "made").status == 0


def test_the_verdict_comes_first(golden: Golden, eoctl: Cli) -> None:
    log_dirs = [golden("kafka-4.4.0") / "clean" / each for each in ("one", "two")]
    outcome = eoctl("releases", *log_dirs)
    first, *_ = outcome.errors.splitlines()
    assert first == "Starts  4.4; 4.3 does not: metadata.version 33 at offset 3"
    call = "kafka-cluster.sh unregister-controller --bootstrap-server HOST:PORT --id 9"
    assert f"Ghost   controller 9 does not vote; if it is gone: {call}" in outcome.errors
    assert "controller 8" not in outcome.errors  # it was unregistered


@pytest.mark.parametrize(("release", "status"), [("4.4", 0), ("4.3", 1), ("4.3.1", 1), ("9.9", 2)])
def test_the_release_that_is_asked_for(
    release: str, status: int, golden: Golden, eoctl: Cli
) -> None:
    log_dirs = [golden("kafka-4.4.0") / "clean" / each for each in ("one", "two")]
    outcome = eoctl("releases", *log_dirs, "--broker-version", release)
    assert outcome.status == status, outcome.errors
    if status == 1:
        assert f"Asked   Kafka {release} does not start: metadata.version 33" in outcome.errors


def test_check_names_the_command(golden: Golden, eoctl: Cli) -> None:
    log_dir = golden("kafka-4.3.1") / "clean"
    outcome = eoctl("check", log_dir, "--fast", "--broker-version", "4.2")
    assert f"Other   eoctl releases {log_dir}   # which releases start there" in outcome.errors
    assert "eoctl releases" not in eoctl("check", log_dir, "--fast").errors


def test_without_the_metadata_nothing_is_sure(golden: Golden, eoctl: Cli) -> None:
    rows, outcome = reported(eoctl, golden("kafka-4.3.1-two-dirs") / "two")
    assert {each["starts"] for each in rows.values()} == {"unknown", "no"}  # two.meta has an id
    assert outcome.status == 5
    assert (
        "its __cluster_metadata-0 was not given"
        in eoctl("releases", golden("kafka-4.3.1-two-dirs") / "two").errors
    )


# --- what is in between ---------------------------------------------------------------------------


def node(tmp_path: Path, *values: bytes, golden: Golden) -> Path:
    """A log dir of a 4.3.1 node whose metadata log has these records."""
    log_dir = tmp_path / "node"
    (log_dir / "__cluster_metadata-0").mkdir(parents=True)
    shutil.copy(golden("kafka-4.3.1") / "clean" / "meta.properties", log_dir)
    log = batch(0, [*values])
    (log_dir / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(log)
    return log_dir


def registered(role: int, node_id: int, top: int) -> bytes:
    name = "brokerId" if role == records.REGISTER_BROKER else "controllerId"
    known = [
        {"name": each, "minSupportedVersion": 0, "maxSupportedVersion": 2}
        for each in FEATURES
        if each != METADATA_VERSION
    ]
    known.append({"name": METADATA_VERSION, "minSupportedVersion": 7, "maxSupportedVersion": top})
    return records.encode_record(
        role, 0, {name: node_id, "incarnationId": bytes(16), "endPoints": [], "features": known}
        | ({"rack": None} if role == records.REGISTER_BROKER else {}),
    )  # fmt: skip


def test_who_keeps_the_next_level_from_being_set(
    tmp_path: Path, golden: Golden, eoctl: Cli
) -> None:
    log_dir = node(
        tmp_path, level("metadata.version", 30), registered(records.REGISTER_BROKER, 5, 29),
        registered(records.REGISTER_BROKER, 6, 33), registered(records.REGISTER_CONTROLLER, 9, 30),
        golden=golden,
    )  # fmt: skip
    _, outcome = reported(eoctl, log_dir)
    rows = rows_of(outcome, "obstacle")
    # Who votes is not known there: nobody is taken for a ghost.
    assert [(row["role"], row["node_id"], row["level"], row["knows"]) for row in rows] == [
        ("controller", 9, 31, "7..30"), ("broker", 5, 30, "7..29"),
    ]  # fmt: skip
    assert [row["offset"] for row in rows] == [3, 1]
    assert "kafka-cluster.sh unregister --bootstrap-server" in rows[1]["remedy"]
    assert "remove-controller" in rows[0]["remedy"]


@pytest.mark.parametrize(
    ("levels", "release", "is_possible", "offset"),
    [((29,), "4.1", True, None), ((29, 30), "4.2", False, 1), ((30, 29, 30), "4.1", False, 2)],
)
def test_what_a_downgrade_needs(
    levels: tuple[int, ...],
    release: str,
    is_possible: bool,
    offset: int | None,
    tmp_path: Path,
    golden: Golden,
    eoctl: Cli,
) -> None:
    """29 came without other records, 30 with some."""
    log_dir = node(tmp_path, *(level("metadata.version", each) for each in levels), golden=golden)
    _, outcome = reported(eoctl, log_dir)
    (row,) = [row for row in rows_of(outcome, "lowering") if row["release"] == release]
    assert (row["feature"], row["level"]) == ("metadata.version", levels[-1])
    assert (row["is_possible"], row["offset"]) == (is_possible, offset)


def test_what_older_releases_drop(tmp_path: Path, golden: Golden, eoctl: Cli) -> None:
    """Groups that they do not know, ranges of hosts, settings; where the levels let them start."""
    rule = {
        "id": bytes(16), "resourceType": 2, "resourceName": "t", "patternType": 3,
        "principal": "User:a", "host": "10.0.0.0/8", "operation": 3, "permissionType": 3,
    }  # fmt: skip
    setting = {
        "resourceType": 2, "resourceName": "t", "name": "remote.copy.lag.ms", "value": "5",
    }  # fmt: skip
    log_dir = node(
        tmp_path, level("metadata.version", 7),
        records.encode_record(records.ACCESS_CONTROL_ENTRY, 0, rule),
        records.encode_record(records.CONFIG, 0, setting), golden=golden,
    )  # fmt: skip
    for state in ("killed/one", "killed/two"):
        for each in (golden("kafka-4.4.0") / state).glob("__[cst][oh r]*"):
            if "metadata" not in each.name:
                shutil.copytree(each, log_dir / each.name)
    rows, outcome = reported(eoctl, log_dir)
    details = [row for row in rows_of(outcome, "detail") if row["does"] == "drops"]
    by_release = {
        each: " | ".join(row["what"] for row in details if row["release"] == each) for each in ALL
    }
    assert {each: rows[each]["starts"] for each in ("3.3", "3.9", "4.4")} == dict.fromkeys(
        ("3.3", "3.9", "4.4"), "yes"
    )
    assert by_release["4.4"] == ""
    assert "access rules for 10.0.0.0/8" in by_release["4.3"]
    assert "records in flight to a dead letter queue" in by_release["4.3"]
    assert "the setting remote.copy.lag.ms of t" in by_release["4.3"]
    assert "streams groups in" in by_release["4.0"]
    assert "consumer groups and share groups and streams groups in" in by_release["3.9"]
    assert "what share groups have acknowledged" in by_release["4.0"]
    assert "all groups and offsets in" in by_release["3.3"]


def test_a_log_that_has_not_begun(tmp_path: Path, eoctl: Cli) -> None:
    """Brokers of 3.3, 3.4, 3.5 and 4.3 started there, and had no topic; the others ended."""
    assert eoctl("init", tmp_path / "k", "--topic", "t", "--apply").status == 0
    rows, _ = reported(eoctl, tmp_path / "k")
    starts = [each for each in ALL if rows[each]["starts"] == "yes"]
    assert starts == [*ALL[: ALL.index("3.6")], "4.3", "4.4"]
    assert all("all topics in it" in rows[each]["drops"] for each in starts[:-1])
    assert rows["4.4"]["drops"] == ""


def test_nothing_is_given(eoctl: Cli) -> None:
    assert eoctl("releases").status == 2
