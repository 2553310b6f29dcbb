"""`eoctl releases` against real brokers of 3.3 to 4.4: who starts is as it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import rows_of
from tests.kafka import jars
from tests.kafka.broker import Broker, BrokerError, copy_log_dir
from tests.kafka.capture.newest import DynamicBroker, observe, run_tool
from tests.kafka.older_releases import VERSIONS, libs_of, missing_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Golden = Callable[[str], Path]

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]
GOLDEN = (
    "kafka-3.3.2 one two", "kafka-3.9.1 one two", "kafka-4.3.1-two-dirs one two",
    "kafka-4.4.0 clean/one clean/two",
)  # fmt: skip
MADE = ("3.3", "3.6", "3.8", "4.0", "4.1", "4.2", "4.3", "4.4")  # by init, for that release
RELEASES = sorted({*VERSIONS, "4.3"}, key=lambda each: [*map(int, each.split("."))])
FIRST_DYNAMIC = (3, 9)
GHOST = 9


def use(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start brokers, and call tools, of a release from here on."""
    if release == jars.release():
        return
    if release not in VERSIONS:
        pytest.skip(f"no jars of Kafka {release} beside those of {jars.release()}")
    if reason := missing_release(release):
        pytest.skip(reason)
    monkeypatch.setattr("tests.kafka.jars.KAFKA_LIBS", libs_of(release))


def reported(eoctl: Cli, log_dirs: list[Path], release: str) -> dict[str, Any]:
    outcome = eoctl("releases", *log_dirs, "--output", "jsonl")
    (row,) = [each for each in rows_of(outcome, "release") if each["release"] == release]
    return row


def starts(broker: Broker) -> bool:
    """Whether it serves; one that does not start ends by itself."""
    try:
        broker.start()
    except BrokerError:
        return False
    else:
        broker.kill()
        return True
    finally:
        broker.close()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("place", GOLDEN)
def test_who_starts(
    place: str,
    release: str,
    golden: Golden,
    eoctl: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(release, monkeypatch)
    archive, *names = place.split()
    log_dirs = [
        copy_log_dir(golden(archive) / each, tmp_path / each.replace("/", "-")) for each in names
    ]
    row = reported(eoctl, log_dirs, release)
    is_dynamic = archive == "kafka-4.4.0"
    knows = tuple(map(int, release.split("."))) >= FIRST_DYNAMIC
    kind = DynamicBroker if is_dynamic and knows else Broker
    assert starts(kind(log_dirs)) is (row["starts"] == "yes"), row


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("made_for", MADE)
def test_who_starts_on_new_ones(
    made_for: str, release: str, eoctl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(release, monkeypatch)
    log_dir = tmp_path / "made"
    made = eoctl("init", log_dir, "--topic", "t", "--broker-version", made_for, "--apply")
    assert made.status == 0, made.errors
    row = reported(eoctl, [log_dir], release)
    assert starts(Broker(log_dir)) is (row["starts"] == "yes"), row


class OfAnOlderLevel(DynamicBroker):
    """A 4.4.0 broker over a log dir with the levels of 4.3."""

    def _format(self, properties_file: Path) -> None:
        from tests.kafka.broker import new_uuid

        self.cluster_id = new_uuid()
        options = ("-t", self.cluster_id, "-c", str(properties_file), "--standalone")
        run_tool("kafka.tools.StorageTool", "format", *options, "--release-version", "4.3")


def test_a_ghost_is_removed_as_told(
    eoctl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of 4.3 that is gone: no level of 4.4 can be set before what is told is done."""
    use("4.3", monkeypatch)
    old = jars.KAFKA_LIBS
    use("4.4", monkeypatch)
    new = jars.KAFKA_LIBS
    upgrade = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server")
    with OfAnOlderLevel(tmp_path / "node") as broker:
        monkeypatch.setattr("tests.kafka.jars.KAFKA_LIBS", old)
        observe(GHOST, broker.controller, broker.cluster_id, tmp_path)
        monkeypatch.setattr("tests.kafka.jars.KAFKA_LIBS", new)
        with pytest.raises(BrokerError, match="Controller 9 only supports versions 7-30"):
            run_tool(*upgrade, broker.bootstrap, "upgrade", "--release-version", "4.4")
        said = eoctl("releases", tmp_path / "node")
        assert "metadata.version 31: controller 9, not a voter knows 7..30" in said.errors
        assert "start a controller of Kafka 4.4 with node.id=9" in said.errors
        # That is done: it registers again, and is gone again.
        (tmp_path / f"controller-{GHOST}").rename(tmp_path / "before")
        observe(GHOST, broker.controller, broker.cluster_id, tmp_path)
        run_tool(*upgrade, broker.bootstrap, "upgrade", "--release-version", "4.4")
        said = eoctl("releases", tmp_path / "node")
        assert "Blocked" not in said.errors
        call = "kafka-cluster.sh unregister-controller --bootstrap-server HOST:PORT --id 9"
        assert f"if it is gone: {call}" in said.errors
        run_tool(
            "org.apache.kafka.tools.ClusterTool", *call.replace("HOST:PORT", broker.bootstrap)
            .split()[1:],
        )  # fmt: skip
        assert "Ghost" not in eoctl("releases", tmp_path / "node").errors
        # 33 brought other records: it cannot be lowered, and that is told.
        with pytest.raises(BrokerError, match="Refusing to perform the requested downgrade"):
            run_tool(*upgrade, broker.bootstrap, "downgrade", "--metadata", "4.3-IV0")
    outcome = eoctl("releases", tmp_path / "node", "--output", "jsonl")
    (row,) = [
        each
        for each in rows_of(outcome, "lowering")
        if (each["release"], each["feature"]) == ("4.3", "metadata.version")
    ]
    assert (row["is_possible"], row["needed_level"]) == (False, 30)
