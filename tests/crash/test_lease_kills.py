"""`lease-pid`, killed at any moment and called again: no answer is lost, nothing is given out twice."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from storage.writing.producer_ids import ProducerIds
from tests.writing import NOW_MS, TOPIC_ID, batch, make_log_dir, open_writer

if TYPE_CHECKING:
    from pathlib import Path

    from storage.formats.producer_id_record import FreeId, Ids, Lease
    from tests.crash.kills import KillServer

KILLS_COUNT = int(os.environ.get("EOCTL_LEASE_KILLS", "64"))
MOMENTS = ("before", "middle", "after")
APPS = ("a", "b", "c", "d")
EXPIRY_MS = 50
# The log is rewritten at each change, or never; and whatever is imported once.
REWRITES: dict[str, Any] = {"COMPACT_BYTES": 0, "COMPACT_RATIO": 0}
MODULES: dict[str, dict[str, Any]] = {
    "eoctl.commands.lease_pid": {},
    "recovery.replay.recover_state": {},
}


class State(NamedTuple):
    """What a log dir has given out."""

    leases: dict[str, Lease]
    free: list[FreeId]
    ids: Ids


class Context:
    """A log dir, whose clock goes on with each call."""

    def __init__(self, root: Path, server: KillServer) -> None:
        self.log_dir = make_log_dir(root / "log-dir")
        self.server = server
        self.now_ms = NOW_MS
        self.generations: set[tuple[int, int]] = set()
        writer = open_writer(self.log_dir / "t-0")
        writer.append(batch())
        writer.close()

    def inspect(self) -> State:
        found = ProducerIds.at(self.log_dir, None, topic_id=TOPIC_ID)
        found.refresh()
        return State({each.app_id: each for each in found.leases()}, found.free_ids(), found.ids)

    def call(
        self, arguments: tuple[object, ...], *, is_rewritten: bool, **kill: Any
    ) -> dict[str, Any]:
        settings = {**MODULES, "storage.writing.producer_ids": REWRITES if is_rewritten else {}}
        part, *more = arguments
        now = ("--now", self.now_ms)
        return self.server.run(
            "lease-pid", part, self.log_dir, *more, *now, settings=settings, **kill
        )

    def expected(self, arguments: tuple[object, ...], before: State) -> State | None:
        """What a call makes of it; None: it takes a generation that depends on more."""
        part, _, app, *_ = (*arguments, "", "")
        if part == "expire":
            ended = [each for each in before.leases.values() if not each.is_held(self.now_ms)]
            free = [*before.free, *((each.producer_id, each.generation) for each in ended)]
            leases = {k: each for k, each in before.leases.items() if each not in ended}
            return State(leases, sorted(free), before.ids)  # type: ignore[type-var]
        if part == "acquire":
            return None
        lease = before.leases[str(app)]
        if part == "renew":
            lease = lease._replace(expires_at_ms=self.now_ms + EXPIRY_MS)
        else:
            lease = lease._replace(is_released=True)
        return before._replace(leases={**before.leases, str(app): lease})

    def require_acquired(self, app: str, before: State, after: State) -> None:
        """One lease is another one: its own id, a free one or a new one, with a new generation."""
        lease = after.leases[app]
        known = before.leases.get(app)
        assert {**after.leases, app: None} == {**before.leases, app: None}
        key = (lease.producer_id, lease.generation)
        assert key not in self.generations
        self.generations.add(key)
        if known is not None:
            assert key == (known.producer_id, known.generation + 1)
        elif before.free:
            assert key == (before.free[0].producer_id, before.free[0].generation + 1)
            assert after.free == before.free[1:]
        else:
            assert lease.generation == 0
            assert lease.producer_id >= before.ids.next_lease_id


def choose_call(chooser: random.Random, state: State, now_ms: int) -> tuple[object, ...]:
    held = [each for each in state.leases.values() if each.is_held(now_ms)]
    kinds = ["acquire"] * 4 + ["expire"] * 2 + ["renew", "release"] * (2 if held else 0)
    kind = chooser.choice(kinds)
    if kind == "expire":
        return ("expire",)
    if kind == "acquire":
        return ("acquire", "--app-id", chooser.choice(APPS), "--expiry-ms", EXPIRY_MS)
    lease = chooser.choice(held)
    call = (kind, "--app-id", lease.app_id, "--generation", lease.generation)
    return (*call, "--expiry-ms", EXPIRY_MS) if kind == "renew" else call


@pytest.mark.exhaustive
def test_killed_at_any_moment_and_called_again(scratch: Path, server: KillServer) -> None:
    """Until it is answered a change holds or not; then it holds. First the rarest kind of call."""
    chooser = random.Random(os.environ["EOCTL_SEED"])
    context = Context(scratch / "run", server)
    per_kind: Counter[str] = Counter()
    first = ("acquire", "--app-id", "a", "--expiry-ms", EXPIRY_MS)
    calls = {each: context.call(first, is_rewritten=each)["calls"] for each in (False, True)}
    kills_count = 0
    while kills_count < KILLS_COUNT:
        context.now_ms += chooser.choice([1, 1, 1, 30])
        before = context.inspect()
        arguments = choose_call(chooser, before, context.now_ms)
        is_rewritten = chooser.random() < 0.6
        usual = calls[is_rewritten]
        kind = min(set(usual), key=lambda each: (per_kind[each], chooser.random()))
        place = chooser.choice([n for n, each in enumerate(usual) if each == kind])
        moment = chooser.choice(MOMENTS)
        found = context.call(arguments, is_rewritten=is_rewritten, operation=place, moment=moment)
        if found["killed"]:
            kills_count += 1
            per_kind[found["calls"][-1]] += 1
        after = context.inspect()
        if not found["killed"] or after.leases != before.leases:
            check(context, arguments, before, after)
        before = after
        arguments = choose_call(chooser, before, context.now_ms)
        is_rewritten = chooser.random() < 0.5
        done = context.call(arguments, is_rewritten=is_rewritten)
        assert done["status"] == 0
        if arguments[0] == "acquire":
            calls[is_rewritten] = done["calls"]
        check(context, arguments, before, context.inspect())
    print(f"killed at {dict(per_kind)}")
    kinds = {"open_new", "open_existing", "write", "fsync", "fsync_dir", "rename", "unlink"}
    assert min(per_kind[each] for each in kinds) >= KILLS_COUNT // 20


def check(context: Context, arguments: tuple[object, ...], before: State, after: State) -> None:
    expected = context.expected(arguments, before)
    if expected is None:
        context.require_acquired(str(arguments[2]), before, after)
    elif arguments[0] != "expire" or after.leases == expected.leases:
        assert after == expected
    else:  # killed between two of the leases that it ends
        assert before.leases.items() >= after.leases.items() >= expected.leases.items()
        assert {*before.free} <= {*after.free} <= {*expected.free}
