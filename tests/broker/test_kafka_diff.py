"""`make kafka-diff`: what a release has that our tables do not is found, and nothing else."""

from __future__ import annotations

import pytest

from recovery.checks.context.broker_version import FEATURES
from storage.dirs.topic_settings import SETTINGS
from storage.formats import cluster_metadata, share_group_state
from tests.kafka import jars, kafka_diff
from tests.kafka.older_releases import VERSIONS, libs_of, missing_release

pytestmark = pytest.mark.broker


def test_the_schemas_of_the_jars_are_ours() -> None:
    """But for what came later than these jars."""
    found = kafka_diff.schema_differences(jars.KAFKA_LIBS, is_older=True)
    assert [each for each in found if not each.endswith("not there")] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("release", ["4.4", "4.3"])
def test_nothing_is_new(release: str) -> None:
    if release not in VERSIONS or release == jars.release():
        assert kafka_diff.differences(jars.KAFKA_LIBS, "4.3.1") == []
        return
    if reason := missing_release(release):
        pytest.skip(reason)
    assert kafka_diff.differences(libs_of(release), VERSIONS[release]) == []


@pytest.mark.exhaustive
def test_what_4_4_brought_would_have_been_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against tables as they were when 4.3 was the newest release."""
    if reason := missing_release("4.4"):
        pytest.skip(reason)
    monkeypatch.delitem(cluster_metadata.RECORDS, 29)
    monkeypatch.delitem(cluster_metadata.RECORD_NAMES, 29)
    monkeypatch.delitem(SETTINGS, "remote.copy.lag.ms")
    monkeypatch.setitem(FEATURES, "share.version", (((4, 1), 1),))
    monkeypatch.setattr(
        share_group_state, "DeliveryState", [
            each for each in share_group_state.DeliveryState if each.name != "ARCHIVING"
        ],
    )  # fmt: skip
    found = kafka_diff.differences(libs_of("4.4"), "4.4.0")
    name = "UNREGISTER_CONTROLLER_RECORD"
    assert found == [
        "recovery/checks/context/broker_version.py: share.version: level 2 is the highest in 4.4",
        "storage/dirs/topic_settings.py: remote.copy.lag.ms is not known, default 0",
        "storage/formats/cluster_metadata.py: UnregisterControllerRecord: is not known (29)",
        f"storage/formats/cluster_metadata.py: metadata-record {name} 29 is not known",
        "storage/formats/share_group_state.py: delivery-state ARCHIVING 3 is not known",
    ]
