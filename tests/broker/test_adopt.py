"""Partitions of dead brokers under a real one: all served, nothing lost, nobody forgotten."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.cluster.coordinator_log import CoordinatorLog
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition
from storage.file_names import METADATA_TOPIC
from storage.log.segment import open_segment
from tests.broker.test_groups import consumer_groups
from tests.changes import rows_of
from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.jars import java_command, quick_start
from tests.many_partitions import multiply_partition
from tests.read_log import read_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Golden = Callable[[str], Path]

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

TIMEOUT_S = 90
QUIET = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
# As after a real outage: what is old goes, if anything says so.
EAGER = {
    "log.retention.check.interval.ms": "500",
    "log.retention.ms": "1000",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.0",
}


def adopt(eoctl: Cli, *arguments: object) -> list[dict[str, Any]]:
    done = eoctl("adopt", *arguments, "--apply", "--output", "jsonl")
    assert done.status == 0, done.errors
    return rows_of(done, "adopted")


def require_served(broker: Broker, rows: list[dict[str, Any]]) -> None:
    """Each partition has the end, and each of them that is no coordinator's the records."""
    for row in rows:
        topic, number, source = row["topic"], row["partition"], row["source"]
        found = client.consume(broker.bootstrap, topic, number, isolation=client.READ_UNCOMMITTED)
        assert found.end_offset == row["log_end_offset"], row
        if topic.startswith("__") or source is None:
            continue
        expected = read_log(Path(source)).records
        given = [
            (each.offset, each.key, each.value)
            for each in expected
            if row["log_start_offset"] <= each.offset < row["log_end_offset"]
        ]
        assert [(each.offset, each.key, each.value) for each in found.records] == given, row


def without_metadata(source: Path, target: Path) -> Path:
    copy_log_dir(source, target)
    shutil.rmtree(target / f"{METADATA_TOPIC}-0")
    return target


def strays(log_dir: Path) -> list[str]:
    return [each.name for each in log_dir.iterdir() if each.name.endswith("-stray")]


def transactional_ids(broker: Broker) -> dict[str, str]:
    """Ids with their states, as kafka-transactions lists them."""
    command = java_command(
        *quick_start(), *QUIET, "org.apache.kafka.tools.TransactionsCommand",
        "--bootstrap-server", broker.bootstrap, "list",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[0]: row[-1] for row in rows if len(row) >= 4 and row[0] != "TransactionalId"}


def producer_id_at(log_dir: Path, name: str, offset: int) -> int:
    place = Partition.of(select_partition(log_dir / name)).find_offset(offset)
    assert place is not None
    return place.batch.header.producer_id


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("state", "release", "way"),
    [("crash", "4.3", "--link"), ("clean", "3.9", "--copy"), ("tv2", "4.0", "--move")],
)
def test_all_of_it_is_served(
    state: str, release: str, way: str, golden: Golden, eoctl: Cli, tmp_path: Path
) -> None:
    """Without metadata, under another cluster id; groups and transactional ids are known."""
    source = without_metadata(golden("kafka-4.3.1") / state, tmp_path / "dead")
    require_all_served([source], eoctl, tmp_path, way, release)


def require_all_served(
    sources: list[Path], eoctl: Cli, tmp_path: Path, way: str, release: str
) -> None:
    """Adopt the log dirs of a node, and see that a broker of that release has and gives all."""
    kept = [copy_log_dir(each, tmp_path / f"kept-{n}") for n, each in enumerate(sources)]
    groups = rows_of(eoctl("groups", "describe", *kept, "--output", "jsonl"), "committed_offset")
    new = tmp_path / "new"
    rows = adopt(eoctl, *sources, "--to", new, way, "--broker-version", release)
    for row in rows:  # what was moved away is compared with what there was
        source = Path(row["source"])
        row["source"] = str(kept[sources.index(source.parent)] / source.name)
    with Broker(new, overrides=EAGER) as broker:
        require_served(broker, rows)
        time.sleep(2)  # for what is deleted by retention, or cleaned
        theirs = consumer_groups(broker, "--describe", "--all-groups")
        ids = transactional_ids(broker)
        require_served(broker, rows)
        # An old id goes on, and a new one has a producer id that nobody had.
        name, number = "txn", 0
        writer = client.transactional_producer(broker.bootstrap, next(iter(sorted(ids))))
        client.transact(writer, [client.Outgoing(name, number, None, b"on")], commit=True)
        fresh = client.producer(broker.bootstrap, enable_idempotence="true")
        [(_, _, offset)] = client.send(fresh, [client.Outgoing(name, number, None, b"new")])
    assert (
        {_offset_row(each) for each in groups}
        == {
            (each["GROUP"], each["TOPIC"], each["PARTITION"], each["CURRENT-OFFSET"])
            for each in theirs
        }
        != set()
    )
    known = {
        name for name, each in CoordinatorLog(map(read_log_dir, kept)).ids.items() if each.state
    }
    assert known == set(ids) != set()
    assert strays(new) == []
    used = {
        batch.header.producer_id
        for path in (log for each in kept for log in each.rglob("*.log"))
        for batch in _batches(path)
        if batch.header.producer_id < 2**48
    }
    assert producer_id_at(new, f"{name}-{number}", offset) > max(used)
    assert eoctl("check", new, "--fail-on", "error").status == 0  # what was open, is


def _offset_row(row: dict[str, Any]) -> tuple[str, ...]:
    names = ("group", "topic", "partition", "committed_offset")
    return tuple("-" if row[name] is None else str(row[name]) for name in names)


def _batches(path: Path) -> list[Any]:
    with open_segment(path) as segment:
        return list(segment.scan())


def test_three_brokers_that_diverged(golden: Golden, eoctl: Cli, tmp_path: Path) -> None:
    """Each partition comes from the copy that `replicas compare` puts first, under its settings."""
    dead = [
        copy_log_dir(
            golden("kafka-4.3.1-three-brokers") / f"diverged/broker-{number}",
            tmp_path / f"broker-{number}",
        )
        for number in (1, 2, 3)
    ]
    compared = eoctl("replicas", "compare", *dead, "--output", "jsonl")
    best = {
        (each["topic"], each["partition"]): each["leader"]
        for each in rows_of(compared, "recommendation")
    }
    new = tmp_path / "new"
    rows = adopt(eoctl, *dead, "--to", new, "--node-id", "9")
    assert {(each["topic"], each["partition"]): each["source"] for each in rows} == best
    with Broker(new, overrides=EAGER) as broker:
        require_served(broker, rows)
        client.send(client.producer(broker.bootstrap), [client.Outgoing("div", 0, None, b"on")])
    assert strays(new) == []
    assert eoctl("check", new, "--fail-on", "error").status == 0  # what was open, is


def test_what_an_older_release_left(golden: Golden, eoctl: Cli, tmp_path: Path) -> None:
    """Two log dirs of a node of 3.9.1 become one, whose features are those of then."""
    dead = [copy_log_dir(golden("kafka-3.9.1") / name, tmp_path / name) for name in ("one", "two")]
    new = tmp_path / "new"
    rows = adopt(eoctl, *dead, "--to", new)
    assert {Path(each["source"]).parent for each in rows} == set(dead)
    with Broker(new, overrides=EAGER) as broker:
        require_served(broker, rows)
        time.sleep(1)
        require_served(broker, rows)
    assert strays(new) == []


def test_three_hundred_partitions(golden: Golden, eoctl: Cli, tmp_path: Path) -> None:
    dead = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "dead")
    multiply_partition(dead, 280)
    new = tmp_path / "new"
    rows = adopt(eoctl, without_metadata(dead, tmp_path / "bare"), "--to", new, "--link")
    assert len(rows) > 300
    with Broker(new, overrides=EAGER) as broker:
        ends = {
            (row["topic"], row["partition"]): row["log_end_offset"]
            for row in rows
            if not row["topic"].startswith("__")
        }
        assert client.end_offsets(broker.bootstrap, ends) == ends
        require_served(broker, [rows[20], rows[150], rows[-1]])
    assert strays(new) == []
    assert len(read_log_dir(new).partitions) == len(rows) + 1  # and the metadata log


@pytest.mark.parametrize("strategy", ["as-broker", "salvage"])
def test_a_damaged_source(strategy: str, golden: Golden, eoctl: Cli, tmp_path: Path) -> None:
    """What is there after the repair is served; the source keeps its damage."""
    dead = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "dead")
    log = dead / "idem-none-0/00000000000000000000.log"
    batches = _batches(log)
    damaged = bytearray(log.read_bytes())
    damaged[batches[1].pos + 70] ^= 1
    log.write_bytes(damaged)
    new = tmp_path / "new"
    refused = eoctl("adopt", dead, "--to", new, "--apply")
    assert refused.status == 4
    assert f"eoctl repair {dead}/idem-none-0" in refused.errors
    assert "--repair salvage" in refused.errors
    assert not new.exists()
    rows = adopt(eoctl, dead, "--to", new, "--repair", strategy)
    assert log.read_bytes() == damaged
    lost = batches[1].header
    with Broker(new, overrides=EAGER) as broker:
        found = client.consume(broker.bootstrap, "idem-none", 0, isolation=client.READ_UNCOMMITTED)
        [end] = [each["log_end_offset"] for each in rows if each["topic"] == "idem-none"]
        assert found.end_offset == end
        offsets = [each.offset for each in found.records]
        before = [*range(lost.base_offset)]
        after = [*range(lost.last_offset + 1, batches[-1].header.last_offset + 1)]
        assert offsets == (before if strategy == "as-broker" else before + after)
    assert strays(new) == []


@pytest.mark.parametrize("has_old", [True, False])
def test_a_compaction_that_did_not_end(
    *, has_old: bool, golden: Golden, eoctl: Cli, tmp_path: Path
) -> None:
    """The broker ends it, as it would have where the files were: nothing is lost either way."""
    whole = golden("kafka-4.3.1") / "clean"
    dead = copy_log_dir(whole, tmp_path / "dead")
    for path in (dead / "rolled-0").glob("000000000000000000*"):
        if path.suffix in {".log", ".index", ".timeindex"} and "50" not in path.stem:
            shutil.copy(path, f"{path}.swap")
            if not has_old:
                path.rename(f"{path}.deleted")
    new = tmp_path / "new"
    rows = adopt(eoctl, dead, "--to", new, "--link")
    [row] = [each for each in rows if each["topic"] == "rolled"]
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 60)
    assert [*(new / "rolled-0").glob("*.log.swap")] != []
    with Broker(new, overrides=EAGER) as broker:
        require_served(broker, [row | {"source": str(whole / "rolled-0")}])
    assert [*(new / "rolled-0").glob("*.swap")] == []
    assert strays(new) == []
