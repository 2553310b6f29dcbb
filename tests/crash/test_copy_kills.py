"""`copy`, killed at any moment and begun again: each record once, in order, along a chain.

EOCTL_KILLS=320 kills it so many times; without it, see `tests.drawn`.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from storage.dirs.topic_settings import LogConfig
from tests.copying import contents, require_sequences
from tests.read_log import read_log
from tests.writing import NEW_TOPIC, NOW_MS, batch, make_log_dir, open_writer, tail_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.kills import KillServer

KILLS_COUNT = int(os.environ.get("EOCTL_KILLS", "104"))
KILLS_OF_A_KIND = 15  # a kind of call among so many at least
ROUNDS_COUNT = 6
# An anchor after each block, blocks of a few batches, and whatever is imported once.
SETTINGS: dict[str, dict[str, Any]] = {
    "eoctl.clients.copying.copier": {"ANCHOR_BYTES": 300},
    "eoctl.clients.log.batch_reader": {"GATHERED_BYTES": 300},
    "eoctl.commands.copy": {},
    "recovery.repair.broker_start": {},
    "recovery.transactions.view": {},
}
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=100)


class Case(NamedTuple):
    """A way to copy."""

    name: str
    options: tuple[object, ...] = ()
    is_committed: bool = True
    has_chain: bool = False
    others_write: bool = False
    is_bulk: bool = False


CASES = [
    Case("plain", ("--fsync", "batch")),
    Case("uncommitted", ("--isolation", "read_uncommitted"), is_committed=False),
    Case("beside others", ("--fsync", "never"), others_write=True),
    Case("chain", has_chain=True),
    Case("bulk", is_bulk=True),
]


class Context:
    """A source with transactions, a copy of it, and maybe a copy of that."""

    def __init__(self, root: Path, case: Case) -> None:
        self.root = root
        self.case = case
        self.source = make_log_dir(root / "source") / "t-0"
        self.copies = [make_log_dir(root / "one") / "t-0", make_log_dir(root / "two") / "t-0"]
        self._epochs = Counter[int]()
        self._rounds = 0
        self._others = 0

    def grow(self, chooser: random.Random) -> None:
        """Batches of two producers, one of them in transactions of which every third is aborted."""
        writer = open_writer(self.source)
        for _ in range(ROUNDS_COUNT):
            self._rounds += 1
            count = chooser.randrange(1, 4)
            value = b"%d" % self._rounds + b"." * chooser.randrange(60)
            writer.append(batch(count, value=value, timestamp_ms=NOW_MS + self._rounds))
            sequence = 0
            for _ in range(chooser.randrange(3)):
                identity = (7, self._epochs[7], sequence)
                writer.append(batch(count, identity, value=value, is_transactional=True))
                sequence += count
            if sequence:
                is_commit = bool(self._rounds % 3)
                writer.end_transaction(7, self._epochs[7] + 1, is_commit=is_commit)
                self._epochs[7] += 1
        writer.close()

    def write_beside(self) -> None:
        """Somebody else appends to the copy, if it was left closed."""
        directory = self.copies[0]
        if directory.exists() and any(directory.glob("*.log")):
            writer = open_writer(directory, SMALL)
            writer.append(batch(2, (9, 0, self._others)))
            writer.close()
            self._others += 2

    def calls(self) -> list[tuple[object, ...]]:
        chain = [self.source, *self.copies][: 3 if self.case.has_chain else 2]
        sizes = ("--segment-bytes", SMALL[0], "--index-interval-bytes", SMALL[2])
        return [
            ("copy", source, copy, "--apply", *NEW_TOPIC, *sizes, *self.case.options)
            for source, copy in itertools.pairwise(chain)
        ]

    def require_exactly_once(self) -> None:
        source = read_log(self.source)
        wanted = contents(source.committed if self.case.is_committed else source.records)
        for copy in self.copies[: len(self.calls())]:
            found = read_log(copy)
            mine = [each for each in found.records if each.value != b"value" or not self._others]
            assert contents(mine) == wanted
            assert [each.offset for each in found.records] == list(range(len(found.records)))
            require_sequences(copy)
            tail_at(copy, SMALL)  # it is closed


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_killed_at_any_moment_and_begun_again(
    scratch: Path, case: Case, server: KillServer
) -> None:
    """First a kind of call, the rarest until now, then one of its calls; sometimes twice."""
    chooser = random.Random(f"{os.environ['EOCTL_SEED']} {case.name}")

    settings = dict(SETTINGS)
    if case.is_bulk:
        settings["eoctl.clients.log.log_walk"] = {"BULK_MIN_BYTES": 0}
        settings["eoctl.clients.copying.copier"] = {"ANCHOR_BYTES": 300, "MIN_RUN_BATCHES": 2}

    def run(call: tuple[object, ...], **more: Any) -> dict[str, Any]:
        return server.run(*call, settings=settings, **more)

    def begin(*, is_first: bool) -> Context:
        """A copy that was never run, or one that goes on, maybe behind others."""
        made = Context(scratch / "run", case)
        made.grow(chooser)
        if not is_first:
            for each in made.calls():
                assert run(each)["status"] == 0
            if case.others_write:
                made.write_beside()
            made.grow(chooser)
        return made

    names: dict[tuple[bool, int], list[str]] = {}
    for is_first in (True, False):
        context = begin(is_first=is_first)
        for which, each in enumerate(context.calls()):
            ended = run(each)
            assert ended["status"] == 0
            names[is_first, which] = ended["calls"]
        context.require_exactly_once()
        shutil.rmtree(context.root)
    per_kind: Counter[str] = Counter()
    kills = KILLS_COUNT // len(CASES)
    kinds = sorted({each for known in names.values() for each in known})
    assert len(kinds) >= 8

    def is_enough() -> bool:
        least = min(per_kind[each] for each in kinds)
        return per_kind.total() >= kills and least >= max(1, kills // KILLS_OF_A_KIND)

    for _ in range(5 * kills):  # a call may be another one in a log that grew otherwise
        if is_enough():
            break
        kind = min(kinds, key=lambda each: (per_kind[each], chooser.random()))
        (is_first, which), known = chooser.choice([it for it in names.items() if kind in it[1]])
        context = begin(is_first=is_first)
        calls = context.calls()
        operation = chooser.choice([n for n, each in enumerate(known) if each == kind])
        moment = chooser.choice(["before", "middle", "after"])
        for each in calls[:which]:
            assert run(each)["status"] == 0
        found = run(calls[which], operation=operation, moment=moment)
        if found["killed"]:
            per_kind[found["calls"][-1]] += 1
        if chooser.random() < 0.4:  # also while it recovers
            again_moment = chooser.choice(["before", "middle", "after"])
            run(calls[which], operation=chooser.randrange(60), moment=again_moment)
        if chooser.random() < 0.3:
            context.grow(chooser)
        for each in calls:
            assert run(each)["status"] == 0, (operation, moment, kind, which)
        context.require_exactly_once()
        shutil.rmtree(context.root)
    print(f"{case.name}: killed at {dict(per_kind)}")
    assert is_enough()
