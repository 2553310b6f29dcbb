"""Producer ids against a slow model: every operation, time, reopening, crashes between writes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.files.fsio import FileSystem
from storage.formats.producer_id_record import FIRST_ID, MAX_GENERATION, Lease
from storage.writing import producer_ids
from storage.writing.producer_ids import LeaseError, ProducerIds
from tests.crash.faults import CALLS
from tests.drawn import examples
from tests.writing import NOW_MS, TOPIC_ID, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files.fsio import Bytes, OpenFile

APPS = st.sampled_from(["a", "b", "c", "d"])
EXPIRIES = st.integers(1, 50)
BLOCK_SIZE = 3


class CrashError(BaseException):
    """The process ends here."""


class CrashingFileSystem(FileSystem):
    """Ends the process at a call, counted from now, before it, or in the middle of a write."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.is_half = False

    def meet(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        if self.is_half:
            return True
        raise CrashError

    def write(self, file: OpenFile, data: Bytes) -> None:
        if self.meet():
            super().write(file, memoryview(data)[: len(data) // 2])
            raise CrashError
        super().write(file, data)

    def fsync(self, file: OpenFile) -> None:
        if self.meet():
            raise CrashError

    def fsync_dir(self, path: Any) -> None:
        if self.meet():
            raise CrashError


def _crashing(name: str) -> Any:
    def call(self: CrashingFileSystem, *args: Any, **options: Any) -> Any:
        if name != "close" and self.meet():
            raise CrashError
        return getattr(FileSystem, name)(self, *args, **options)

    return call


for _name in CALLS:
    if _name not in vars(CrashingFileSystem):
        setattr(CrashingFileSystem, _name, _crashing(_name))


class Model:
    """What must hold, in a few plain values; it knows nothing of files."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.free: dict[int, int] = {}  # id -> generation

    def acquire(self, app: str, expiry_ms: int, now_ms: int, given: Lease, epoch: int) -> None:
        before = self.leases.get(app)
        known = None if before is None else (before.producer_id, before.generation)
        if before is None and self.free:
            known = min(self.free.items())
            del self.free[known[0]]
        if known is not None and max(known[1], epoch) < MAX_GENERATION:
            assert (given.producer_id, given.generation) == (known[0], max(known[1], epoch) + 1)
        else:
            assert given.generation == 0
        expected = Lease(app, given.producer_id, given.generation, expiry_ms, now_ms + expiry_ms)
        assert given == expected
        self.leases[app] = given


class ProducerIdMachine(RuleBasedStateMachine):
    """Two processes that take turns; each may end at any call of the file system."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="eoctl-ids-"))
        self.log_dir = make_log_dir(self.root / "log-dir")
        self.now_ms = NOW_MS
        self.fs = [CrashingFileSystem(), CrashingFileSystem()]
        self.ids = [self.open(0), self.open(1)]
        self.model = Model()
        self.given: set[int] = set()
        self.generations: set[tuple[int, int]] = set()
        self.compact_bytes = producer_ids.COMPACT_BYTES
        producer_ids.COMPACT_BYTES = 1500

    def teardown(self) -> None:
        producer_ids.COMPACT_BYTES = self.compact_bytes
        shutil.rmtree(self.root)

    def open(self, who: int) -> ProducerIds:
        return ProducerIds.at(
            self.log_dir,
            self.fs[who],
            now_ms=lambda: self.now_ms,
            topic_id=TOPIC_ID,
            block_size=BLOCK_SIZE,
        )

    # -- what can be done

    @rule(who=st.integers(0, 1), count=st.integers(1, 4))
    def take_ids(self, who: int, count: int) -> None:
        for _ in range(count):
            given = self.call(who, self.ids[who].next_id)
            if given is not None:
                assert given not in self.given
                self.given.add(given)

    @rule(
        who=st.integers(0, 1),
        app=APPS,
        expiry_ms=EXPIRIES,
        epoch=st.sampled_from([-1] * 5 + [7, 32765, 32766]),
    )
    def acquire(self, who: int, app: str, expiry_ms: int, epoch: int) -> None:
        lease = self.call(
            who, lambda: self.ids[who].acquire(app, expiry_ms, last_epoch=lambda _: epoch)
        )
        if lease is not None:
            self.model.acquire(app, expiry_ms, self.now_ms, lease, epoch)
            self.note(lease)

    @rule(who=st.integers(0, 1), app=APPS, back=st.integers(-1, 1), expiry_ms=EXPIRIES)
    def renew(self, who: int, app: str, back: int, expiry_ms: int) -> None:
        before = self.model.leases.get(app)
        generation = 0 if before is None else before.generation - back
        ids = self.ids[who]
        lease = self.call(
            who, lambda: ids.renew(app, generation, expiry_ms), self.refusal(app, back)
        )
        if lease is not None:
            assert before is not None
            renewed = before._replace(expiry_ms=expiry_ms, expires_at_ms=self.now_ms + expiry_ms)
            self.model.leases[app] = renewed
            assert lease == renewed

    @rule(who=st.integers(0, 1), app=APPS, back=st.integers(-1, 1))
    def release(self, who: int, app: str, back: int) -> None:
        before = self.model.leases.get(app)
        generation = 0 if before is None else before.generation - back
        refusal = self.refusal(app, back, may_be_lapsed=True)
        lease = self.call(who, lambda: self.ids[who].release(app, generation), refusal)
        if lease is not None:
            assert before is not None
            self.model.leases[app] = before._replace(is_released=True)
            assert lease == self.model.leases[app]

    @rule(who=st.integers(0, 1), numbers=st.sets(st.integers(0, 12)))
    def free(self, who: int, numbers: set[int]) -> None:
        wanted = {FIRST_ID + each for each in numbers}
        ended = self.call(who, lambda: self.ids[who].free(wanted))
        if ended is None:
            return
        expected = [
            each
            for each in self.model.leases.values()
            if each.producer_id in wanted and not each.is_held(self.now_ms)
        ]
        assert sorted(ended) == sorted(expected)
        for each in ended:
            del self.model.leases[each.app_id]
            if each.generation < MAX_GENERATION:
                self.model.free[each.producer_id] = each.generation

    @rule(passed_ms=st.integers(1, 40))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.ids[who].close()
        self.ids[who] = self.open(who)

    @rule(who=st.integers(0, 1), left=st.integers(0, 30), is_half=st.booleans())
    def crash_later(self, who: int, left: int, is_half: bool) -> None:
        self.fs[who].left, self.fs[who].is_half = left, is_half

    # -- how it is done

    def refusal(self, app: str, back: int, *, may_be_lapsed: bool = False) -> str:
        before = self.model.leases.get(app)
        if before is None:
            return "INVALID_PRODUCER_ID_MAPPING"
        if back:
            return "PRODUCER_FENCED"
        return "" if may_be_lapsed or before.is_held(self.now_ms) else "INVALID_PRODUCER_ID_MAPPING"

    def call(self, who: int, call: Callable[[], Any], refusal: str = "") -> Any:
        """What is answered; None: it is refused, as it must be, or the process ended on the way."""
        try:
            answer = call()
        except LeaseError as error:
            if error.kafka_error != refusal:
                raise
            return None
        except CrashError:
            self.fs[who].left = None
            self.ids[who] = self.open(who)
            self.take_over()
            return None
        assert not refusal
        return answer

    def take_over(self) -> None:
        """An unanswered change holds or not, but whole: what is found is what there may be."""
        found = ProducerIds.at(self.log_dir, FileSystem(), now_ms=lambda: self.now_ms)
        found.refresh()
        leases = {each.app_id: each for each in found.leases()}
        free = {each.producer_id: each.generation for each in found.free_ids()}
        changed = {
            app
            for app in leases.keys() | self.model.leases.keys()
            if leases.get(app) != self.model.leases.get(app)
        }
        for app in changed:
            now, before = leases.get(app), self.model.leases.get(app)
            if now is None:  # freed
                assert before is not None
                assert not before.is_held(self.now_ms)
                assert before.generation == MAX_GENERATION or before.producer_id in free
            elif before is None or now[1:3] != before[1:3]:
                self.note(now)
        self.model.leases, self.model.free = leases, free
        found.close()

    def note(self, lease: Lease) -> None:
        """No generation of an id is given out twice, and no id that went out without a lease."""
        assert lease[1:3] not in self.generations
        assert lease.producer_id not in self.given
        self.generations.add(lease[1:3])

    @invariant()
    def what_is_found(self) -> None:
        found = ProducerIds.at(self.log_dir, None, now_ms=lambda: self.now_ms)
        found.refresh()
        assert {each.app_id: each for each in found.leases()} == self.model.leases
        assert {each.producer_id: each.generation for each in found.free_ids()} == self.model.free
        ids = [each.producer_id for each in found.leases()] + [*self.model.free]
        assert len(set(ids)) == len(ids)
        assert self.given.isdisjoint(ids)
        assert max([*self.given, *ids], default=0) < found.ids.next_block_id


ProducerIdMachine.TestCase.settings = settings(
    parent=settings.get_profile("local"), max_examples=examples(60), stateful_step_count=40
)
test_against_the_model = ProducerIdMachine.TestCase
