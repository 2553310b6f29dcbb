"""`eoctl serve` of a log dir with tiered storage: what is in remote storage only is told, not served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import wire
from tests.kafka.broker import copy_log_dir
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVE = "kafka-4.3.1-tiered"
# What a broker with its remote storage names of producers, after its start on `clean`.
PRODUCERS = {
    "tiered": [1, 2, 3, 4, 21],
    "halved": [5, 6, 7, 8, 21],
    "shortened": [9, 10, 11, 12, 21],
    "grown": [13, 14, 15, 16, 21],
    "plain": [17, 18, 19, 20, 21],
}


def producers(served: Served) -> dict[str, list[int]]:
    """The producer ids of each topic."""
    asked = [{"name": each, "partitionIndexes": [0]} for each in PRODUCERS]
    with Wire(served.bootstrap) as ours:
        answer = ours.ask("DescribeProducers", 0, {"topics": asked})
    return {
        topic["name"]: sorted(
            each["producerId"]
            for partition in topic["partitions"]
            for each in partition["activeProducers"]
        )
        for topic in answer["topics"]
    }


@pytest.mark.share(1)
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_what_is_remote_only_is_told(golden: Callable[[str], Path], state: str) -> None:
    with Served(golden(ARCHIVE) / state, "--for-seconds", "1") as served:
        found = served.wait()
    assert found.status == 0
    shortened = 24 if state == "clean" else 0  # the checkpoint was not written yet
    for name, first, last in (
        ("tiered", 0, 253),
        ("halved", 0, 185),
        ("shortened", shortened, 253),
    ):
        words = f"{name}-0: offsets {first} to {last} are in remote storage only"
        assert words in found.stderr, found.stderr
    assert found.stderr.count("in remote storage only") == 3
    assert "they are not served" in found.stderr


def test_producers_are_those_of_a_broker(golden: Callable[[str], Path]) -> None:
    """They are in the snapshots, whose records may be remote."""
    with Served(golden(ARCHIVE) / "clean") as served:
        assert producers(served) == PRODUCERS
        assert "no snapshot has the producers" not in served.stop().stderr


def test_an_incomplete_list_of_producers_is_told(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Without snapshots those are not known who wrote in remote segments only."""
    log_dir = copy_log_dir(golden(ARCHIVE) / "crash", tmp_path / "log-dir")
    for each in log_dir.glob("tiered-0/*.snapshot"):
        each.unlink()
    with Served(log_dir) as served:
        assert producers(served) == {**PRODUCERS, "tiered": [2, 21]}
        reported = served.stop().stderr
    assert reported.count("no snapshot has the producers up to there") == 1, reported
    assert "tiered-0: its list of producers is not whole" in reported


def test_what_was_aborted_since_before(golden: Callable[[str], Path]) -> None:
    """It begins with what is here: whoever reads from there is shown none of it."""
    with (
        Served(golden(ARCHIVE) / "clean") as served,
        Wire(served.bootstrap) as ours,
    ):
        answer = wire.fetch(ours, "tiered", 0, 254, is_committed=True)
        assert answer["logStartOffset"] == 254
        assert answer["abortedTransactions"] == [{"producerId": 2, "firstOffset": 254}]
        below = wire.fetch(ours, "tiered", 0, 253, is_committed=True)
        assert below["errorCode"] == 1  # OFFSET_OUT_OF_RANGE
