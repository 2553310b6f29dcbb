"""The page of a report whose logs Spark has read: that of `eoctl report`, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.damage.planted import FAULTS
from tests.kafka.broker import copy_log_dir
from tests.spark.odd_sources import DIED, DyingAudit
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.damage.planted.shape import Fault

pytestmark = [*SPARK_MARKS, pytest.mark.usefixtures("spark")]
__all__ = ["spark"]
PARTITIONS = ("txn-0", "rolled-0", "compacted-0", "__transaction_state-0")


def require_same(eoctl: Callable[..., Any], tmp_path: Path, *paths: object) -> bytes:
    ours, theirs = tmp_path / "spark.html", tmp_path / "report.html"
    call = ("spark-audit", "--engine", "spark", "--split-bytes", "1", *paths)
    done = eoctl(*call, "--report-html", ours, "--now", "1795229940000", "--force")
    assert done.status in {0, 1, 5}, done.errors
    assert "engine: spark" in done.errors
    eoctl("report", *paths, "--to", theirs, "--now", "1795229940000", "--force")
    assert ours.read_bytes() == theirs.read_bytes()
    return ours.read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize("state", ["crash", "clean", "tv2"])
def test_partitions_of_a_broker(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, state: str
) -> None:
    log_dir = golden("kafka-4.3.1") / state
    require_same(eoctl, tmp_path, *(log_dir / name for name in PARTITIONS))


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize(
    "state",
    [
        *(f"kafka-4.3.1/{name}" for name in ("clean", "crash", "hard", "recovered", "tv2")),
        *("kafka-0.10.2-legacy/", "kafka-4.3.1-tiered/crash", "kafka-4.3.1-two-dirs/one"),
    ],
)
def test_real_directories(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, state: str
) -> None:
    name, _, rest = state.partition("/")
    require_same(eoctl, tmp_path, golden(name) / rest)


@pytest.mark.share(1)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_damaged_directories(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, fault: Fault
) -> None:
    is_legacy = fault.state == "legacy"
    source = golden("kafka-0.10.2-legacy") if is_legacy else golden("kafka-4.3.1") / fault.state
    log_dir = copy_log_dir(source, tmp_path / "kafka")
    fault.planted_in(log_dir)
    there = [log_dir / name for name in fault.partitions if (log_dir / name).is_dir()]
    require_same(eoctl, tmp_path, *(there or [log_dir]))


@pytest.mark.exhaustive
def test_a_task_that_is_killed_is_done_again(
    spark: SparkSession,
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "kafka")
    spark.dataSource.register(DyingAudit)
    monkeypatch.setattr("eoctl.spark.audit.KafkaLogAudit", DyingAudit)
    require_same(eoctl, tmp_path, log_dir / "txn-0")
    assert (log_dir / DIED).exists()
    (log_dir / DIED).unlink()
