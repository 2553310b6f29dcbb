"""`txn run`, killed at any moment and begun again: committed output and offsets agree, exactly."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from recovery.cluster.group_offsets import find_group_offsets
from storage.dirs.log_dir import read_log_dir
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.read_log import read_log
from tests.transactional import open_partitions
from tests.writing import NEW_TOPIC, make_log_dir, partition_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.kills import KillServer

KILLS_COUNT = int(os.environ.get("EOCTL_KILLS", "240"))
LINES_COUNT = 60
PARTITIONS_COUNT = 2
GROUP = "g"
SETTINGS: dict[str, dict[str, Any]] = {
    "eoctl.commands.txn": {},
    "eoctl.commands.txn.run": {},
    "recovery.repair.broker_start": {},
}


class Sinks(NamedTuple):
    """Where a run writes to: partitions, and how it is called."""

    partitions: tuple[str, ...]
    options: tuple[object, ...]

    def arguments(self, root: Path, version: int) -> tuple[object, ...]:
        return (
            *("txn", "run", root / "log-dir" / "s-0", "--to", root / "log-dir"),
            *("--group", GROUP, "--transactional-id", "id", "--txn-records", 7),
            *("--transaction-version", version, "--apply", "--fsync", "batch", *self.options),
        )


# The filter of the second one names a topic in each line: even ones go to t, odd ones to u.
NAMING = r"""sed -E 's/.*"value":"([0-9]*[02468])".*/{"topic":"t","value":"x\1"}/;
 s/.*"value":"([0-9]+)".*/{"topic":"u","value":"x\1"}/'"""
SINKS = {
    "one": Sinks(
        ("t-0", "t-1"),
        ("--to-topic", "t", "--partitions", 2, "--exec", "sed s/^/x/", *NEW_TOPIC),
    ),
    "several": Sinks(
        ("t-0", "u-0", "u-1"),
        ("--to-topic", "t", "--to-topic", "u", "--format", "jsonl", "--exec", NAMING,
         "--single-copy"),
    ),
}  # fmt: skip


def make_template(root: Path, sinks: Sinks, server: KillServer) -> list[bytes]:
    """A log dir with a source, a fourth of it aborted, and small coordinators' topics."""
    log_dir = make_log_dir(root / "log-dir")
    partitions = open_partitions(log_dir)
    for topic in (TRANSACTION_STATE_TOPIC, GROUPS_TOPIC):
        partitions.create_topic(topic, PARTITIONS_COUNT)
    if sinks is SINKS["several"]:
        for topic, count in (("t", 1), ("u", 2)):
            partitions.create_topic(topic, count)
    assert partitions.close() is None
    lines = [b"%d" % number for number in range(LINES_COUNT)]
    (root / "input").write_bytes(b"\n".join(lines))
    options = ("--txn-records", 5, "--abort-every", 4, "--apply", *NEW_TOPIC)
    ended = server.run("produce", log_dir / "s-0", root / "input", *options)
    assert ended["status"] == 0
    return [each for number, each in enumerate(lines) if number // 5 % 4 != 3]


def require_exactly_once(root: Path, sinks: Sinks, wanted: list[bytes]) -> None:
    """Each line is committed once, in order in its partition, and the group is at the end."""
    log_dir = root / "log-dir"
    found = [read_log(log_dir / each) for each in sinks.partitions]
    assert not any(each.undecided for each in found)
    values = [[int((each.value or b"")[1:]) for each in log.committed] for log in found]
    if sinks is SINKS["several"]:
        assert [
            {each % 2 for each in one} - {rest} for one, rest in zip(values, (0, 1, 1), strict=True)
        ] == [set()] * 3
    assert all(each == sorted(each) for each in values)
    assert sorted(number for each in values for number in each) == [int(each) for each in wanted]
    offsets = find_group_offsets([read_log_dir(log_dir)], "s", 0)
    assert offsets is not None
    (committed,) = offsets.offsets
    end = partition_at(log_dir / "s-0").log_end()
    assert end is not None
    end_offset = end.offset
    assert (committed.group, committed.offset, committed.is_pending) == (GROUP, end_offset, False)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "version"), [("one", 1), ("one", 2), ("several", 1), ("several", 2)]
)
def test_killed_at_any_moment_and_begun_again(
    scratch: Path, name: str, version: int, server: KillServer
) -> None:
    """First a kind of call, the rarest until now, then one of its calls; sometimes twice."""
    chooser = random.Random(f"{os.environ['EOCTL_SEED']} {name} {version}")
    sinks = SINKS[name]
    template = scratch / "template"
    template.mkdir()
    wanted = make_template(template, sinks, server)
    run = scratch / "run"

    def begin() -> tuple[object, ...]:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(template, run)
        return sinks.arguments(run, version)

    ended = server.run(*begin(), settings=SETTINGS)
    assert ended["status"] == 0
    require_exactly_once(run, sinks, wanted)
    calls = ended["calls"]
    per_kind: Counter[str] = Counter()
    for _ in range(KILLS_COUNT // 2):
        call = begin()
        kind = min(set(calls), key=lambda each: (per_kind[each], chooser.random()))
        operation = chooser.choice([n for n, each in enumerate(calls) if each == kind])
        moment = chooser.choice(["before", "middle", "after"])
        found = server.run(*call, operation=operation, moment=moment, settings=SETTINGS)
        assert found["killed"]
        per_kind[found["calls"][-1]] += 1
        if chooser.random() < 0.5:  # also while it recovers, and while that is recovered
            for _ in range(chooser.randrange(1, 3)):
                at = {"operation": chooser.randrange(120), "moment": moment}
                server.run(*call, **at, settings=SETTINGS)
        again = server.run(*call, settings=SETTINGS)
        assert again["status"] == 0, (operation, moment, kind)
        require_exactly_once(run, sinks, wanted)
    print(f"{name}, version {version}: killed at {dict(per_kind)}")
    assert min(per_kind.values()) >= min(10, KILLS_COUNT // 24)
