"""Releases: what is read as one, and what a whole check tells of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.checks.context.broker_version import (
    CHECKED,
    LINES,
    NEWEST,
    OLDEST,
    BrokerVersion,
    is_before,
    parse_broker_version,
)
from recovery.checks.partition_check import CheckOptions
from recovery.cluster.clusters import Clusters
from recovery.fsck.one_pass import CheckJob, CheckResult, check_one
from storage.dirs.discovery import discover
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[4]
FIRST = "00000000000000000000"


def check(root: Path, version: str) -> dict[str, CheckResult]:
    found = discover([root])
    clusters = Clusters(found.log_dirs)
    options = CheckOptions(
        1_700_000_000_000, broker_version=parse_broker_version(version) if version else None
    )
    return {
        Path(each.partition.path).name: check_one(
            CheckJob(each, clusters.image_for(each.log_dir), options)
        )
        for each in found.selected
    }


@pytest.mark.parametrize(
    ("text", "version", "shown"),
    [
        ("4.3", BrokerVersion(4, 3), "4.3"),
        ("3.4.1", BrokerVersion(3, 4, 1), "3.4.1"),
        ("2.8", BrokerVersion(2, 8), "2.8"),
        ("3.10.0", None, ""),
        ("2.7.2", None, ""),
        ("4.4", BrokerVersion(4, 4), "4.4"),
        ("4.5", None, ""),
        ("4", None, ""),
        ("v4.3", None, ""),
        ("4.3.1-rc0", None, ""),
        ("", None, ""),
    ],
)
def test_versions(text: str, version: BrokerVersion | None, shown: str) -> None:
    if version is None:
        with pytest.raises(UsageError, match=r"--broker-version"):
            parse_broker_version(text)
    else:
        assert parse_broker_version(text) == version
        assert str(version) == shown


def test_a_line_stands_for_its_last_patch() -> None:
    assert is_before(BrokerVersion(3, 4, 0), (3, 4, 1))
    assert not is_before(BrokerVersion(3, 4), (3, 4, 1))
    assert not is_before(None, (4, 3))


def test_pages_name_the_releases() -> None:
    """Without an option that of CHECKED, whatever newer lines are known."""
    assert OLDEST <= CHECKED <= NEWEST
    assert CHECKED.line in {BrokerVersion(*each) for each in LINES}
    page = (ROOT / "man/eoctl-check.1").read_text()
    assert f"\nfrom {OLDEST} to {NEWEST}.\n" in page
    assert f"\nThe default is {CHECKED}, " in page
    assert f"these differences from {CHECKED.line} count.\n" in page


@pytest.mark.share(5)
@pytest.mark.parametrize("version", [f"{major}.{minor}" for major, minor in LINES[:-1]])
def test_older_releases_do_not_start_on_metadata_of_4_3(
    golden: Callable[[str], Path], version: str
) -> None:
    """Real brokers 3.3.2, 3.6.2 and 3.9.1 end at metadata.version 30 as they start."""
    for name, result in check(golden("kafka-4.3.1") / "clean", version).items():
        start = f"Kafka {version} does not start with metadata.version 30"
        assert (result.row.start, result.row.start_end_offset) == (start, None)
        assert result.changes == ()
        errors = {each.check_id for each in result.findings if each.severity == "error"}
        assert errors == ({"KRF-4"} if name == "__cluster_metadata-0" else set())


@pytest.mark.parametrize("state", ["clean", "crash"])
def test_the_newest_is_the_default(golden: Callable[[str], Path], state: str) -> None:
    log_dir = golden("kafka-4.3.1") / state
    assert check(log_dir, "4.3") == check(log_dir, "")


@pytest.mark.parametrize("version", ["2.8", "3.3", "3.9"])
def test_a_log_dir_of_before_kraft(golden: Callable[[str], Path], version: str) -> None:
    log_dir = golden("kafka-0.10.2-legacy")
    assert check(log_dir, version) == check(log_dir, "")


def test_an_index_whose_swap_was_cut_short(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """From 3.0 on (3.3.2 did) the index gets its name; 2.8 deletes it, and recovers the segment."""
    log_dir = tmp_path / "d"
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "rolled-0", log_dir / "rolled-0")
    (log_dir / "rolled-0").chmod(0o755)
    (log_dir / ".kafka_cleanshutdown").write_bytes(b"")
    directory = log_dir / "rolled-0"
    (directory / f"{FIRST}.index").rename(directory / f"{FIRST}.index.swap")
    log_bytes = (directory / f"{FIRST}.log").stat().st_size
    expected = {"": ("renames", 0), "3.0": ("renames", 0), "2.8": (None, log_bytes)}
    for version, (action, recovered_bytes) in expected.items():
        result = check(log_dir, version)["rolled-0"]
        changes = {Path(each.path).name: each.action for each in result.changes}
        assert changes.get(f"{FIRST}.index.swap") == action
        assert result.row.recovered_bytes == recovered_bytes
        assert (changes.get(f"{FIRST}.timeindex") == "rebuilds") == (version == "2.8")
