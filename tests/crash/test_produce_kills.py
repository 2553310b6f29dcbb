"""`produce --producer-session`, killed at any moment and begun again: each record once, in order."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from eoctl.clients.producing.topic_producer import partition_for_key
from storage.dirs.discovery import discover
from storage.dirs.log_tail import read_tail
from storage.dirs.partition import Partition
from tests.read_log import read_log
from tests.writing import NEW_TOPIC, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.kills import KillServer

KILLS_COUNT = 300
LINES_COUNT = 60
# Saved after each block of records, and whatever is imported once.
SETTINGS: dict[str, dict[str, Any]] = {
    "eoctl.clients.producing.topic_producer": {"SAVE_SECONDS": 0, "RECORDS_PER_INSPECTION": 7},
    "eoctl.clients.record_formats.inputs": {"BLOCK_BYTES": 300},
    "eoctl.commands.produce": {},
    "recovery.repair.broker_start": {},
}
SMALL = ("--batch-bytes", 200, "--segment-bytes", 900, "--index-interval-bytes", 100)


class Case(NamedTuple):
    """A way to produce; `abort_every` transactions of `txn_records` one is aborted."""

    name: str
    partitions_count: int = 1
    txn_records: int | None = None
    abort_every: int | None = None
    options: tuple[object, ...] = ()


CASES = [
    Case("plain", options=("--fsync", "batch")),
    Case("gzip", options=("--compression", "gzip", "--fsync", "segment")),
    Case("old", 1, 7, 3, ("--transaction-version", 1)),
    Case("new", 1, 7, 3, ("--fsync", "batch")),
    Case("topic", 3, None, None, ("--key-separator", "=")),
    Case("old-topic", 3, 9, 2, ("--key-separator", "=", "--transaction-version", 1)),
    Case("new-topic", 3, 9, 2, ("--key-separator", "=", "--fsync", "batch")),
    Case("link", 1, None, None, ("--fault", "drop=0.2,reorder=0.2,lost-ack=0.2", "--in-flight", 4)),
]


def input_lines(first: int, count: int) -> list[bytes]:
    return [b"k%d=%d" % (n % 5, n) + b"." * (n * 7 % 60) for n in range(first, first + count)]


class Context:
    """A log dir, an input and a session."""

    def __init__(self, root: Path, case: Case) -> None:
        self.root = root
        self.case = case
        self.log_dir = make_log_dir(root / "log-dir")
        self.lines: list[bytes] = []

    def grow(self, count: int) -> None:
        self.lines += input_lines(len(self.lines), count)
        (self.root / "input").write_bytes(b"".join(each + b"\n" for each in self.lines))

    @property
    def arguments(self) -> tuple[object, ...]:
        case = self.case
        path: tuple[object, ...] = (self.log_dir / "t-0", self.root / "input")
        if case.partitions_count > 1:
            path = (self.log_dir, self.root / "input", "--to-topic", "t")
            path += ("--partitions", case.partitions_count)
        if case.txn_records is not None:
            path += ("--txn-records", case.txn_records, "--abort-every", case.abort_every)
        return (
            "produce", *path, *SMALL, *case.options, "--apply", *NEW_TOPIC,
            "--producer-session", self.root / "session", "--acks-to", self.root / "acks",
        )  # fmt: skip

    def require_exactly_once(self, ends: list[int]) -> None:
        """Every line is in its partition once, in order; `ends` are the lengths of the inputs."""
        wanted: list[list[bytes]] = [[] for _ in range(self.case.partitions_count)]
        committed: list[list[bytes]] = [[] for _ in range(self.case.partitions_count)]
        transaction = in_transaction = 0
        for number, line in enumerate(self.lines):
            key, _, value = line.partition(b"=")
            is_keyed = "--key-separator" in self.case.options
            partition = 0
            if is_keyed:
                partition = partition_for_key(key, self.case.partitions_count)
            content = value if is_keyed else line
            wanted[partition].append(content)
            size, abort_every = self.case.txn_records, self.case.abort_every
            if abort_every is None or (transaction + 1) % abort_every:
                committed[partition].append(content)
            if size is not None:
                in_transaction += 1
                if in_transaction == size or number + 1 in ends:
                    transaction, in_transaction = transaction + 1, 0
        for partition in range(self.case.partitions_count):
            found = read_log(self.log_dir / f"t-{partition}")
            assert [each.value for each in found.records] == wanted[partition]
            assert [each.value for each in found.committed] == committed[partition]
            assert not found.undecided


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_killed_at_any_moment_and_begun_again(
    scratch: Path, case: Case, server: KillServer
) -> None:
    """First a kind of call, the rarest until now, then one of its calls; sometimes twice."""
    chooser = random.Random(f"{os.environ['EOCTL_SEED']} {case.name}")

    def begin() -> Context:
        made = Context(scratch / "run", case)
        made.grow(LINES_COUNT)
        return made

    whole = begin()
    ended = server.run(*whole.arguments, settings=SETTINGS)
    assert ended["status"] == 0
    whole.require_exactly_once([LINES_COUNT])
    calls = ended["calls"]
    shutil.rmtree(whole.root)
    per_kind: Counter[str] = Counter()
    for _ in range(KILLS_COUNT // len(CASES) + 1):
        context = begin()
        kind = min(set(calls), key=lambda each: (per_kind[each], chooser.random()))
        operation = chooser.choice([n for n, each in enumerate(calls) if each == kind])
        moment = chooser.choice(["before", "middle", "after"])
        found = server.run(
            *context.arguments, operation=operation, moment=moment, settings=SETTINGS
        )
        assert found["killed"]
        per_kind[found["calls"][-1]] += 1
        if chooser.random() < 0.4:  # also while it recovers
            server.run(
                *context.arguments,
                operation=chooser.randrange(60),
                moment=chooser.choice(["before", "middle", "after"]),
                settings=SETTINGS,
            )
        ends = [LINES_COUNT]
        if chooser.random() < 0.5:
            # Where the input has ended counts if that was noted: then the same run must end first.
            assert server.run(*context.arguments, settings=SETTINGS)["status"] == 0
            context.grow(chooser.randrange(1, 20))
            ends.append(len(context.lines))
        again = server.run(*context.arguments, settings=SETTINGS)
        assert again["status"] == 0, (operation, moment, kind)
        context.require_exactly_once(ends)
        shutil.rmtree(context.root)
    print(f"{case.name}: killed at {dict(per_kind)}")
    # A file is renamed, a directory made or synced at most a few times in a run.
    assert min(per_kind[each] for each in {*calls}) >= 2


INTERRUPTS_COUNT = 8
SIZE = 20  # of a transaction
LARGE = ("--segment-bytes", "100000")


@pytest.mark.exhaustive
def test_interrupted_at_any_moment(scratch: Path) -> None:
    """No transaction has two outcomes, the partitions are closed, and what was begun is aborted."""
    chooser = random.Random(os.environ["EOCTL_SEED"])
    statuses: Counter[int] = Counter()
    for number in range(INTERRUPTS_COUNT):
        context = Context(scratch / str(number), Case("topic", 3, SIZE, 1000))
        context.grow(20_000)
        arguments = [str(each) for each in context.arguments if str(each) != "--producer-session"]
        arguments.remove(str(context.root / "session"))
        process = subprocess.Popen(
            [sys.executable, "-m", "eoctl", *arguments, "--key-separator", "=", *LARGE],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not (context.log_dir / "t-2").exists():
            time.sleep(0.01)
        time.sleep(chooser.random())
        process.send_signal(signal.SIGINT)
        statuses[process.wait(60)] += 1
        outcomes: dict[int, set[bool]] = {}
        for partition in range(3):
            path = context.log_dir / f"t-{partition}"
            found = read_log(path)
            assert not found.undecided
            committed = {each.offset for each in found.committed}
            for each in found.records:
                number_of_line = int((each.value or b"").rstrip(b"."))
                is_commit = each.offset in committed
                outcomes.setdefault(number_of_line // SIZE, set()).add(is_commit)
            (selected,) = discover([path]).selected
            read_tail(Partition.of(selected), 100)
        assert all(len(each) == 1 for each in outcomes.values())
        shutil.rmtree(context.root)
    print(f"interrupted {INTERRUPTS_COUNT} times: exit status {dict(statuses)}")
    assert set(statuses) <= {0, 130}
