"""Twenty truncations, judged by a real broker, a real client and a slow reference; and back again."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.crash.trees import difference, leftovers, tree_of
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.cut_topic import (
    HIGH_WATERMARKS,
    PARTITIONS_COUNT,
    TOPIC,
    TRIMMED,
    Author,
    consume_all,
    make_cut_topic,
    read_logs,
)
from tests.kafka.reference_log import (
    Batch,
    Log,
    read_committed,
    read_offset_lines,
    stable_end,
    transactions,
)
from tests.once import once_per_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.trees import Entry
    from tests.kafka.client import Incoming
    from tests.kafka.cut_topic import CutTopic, Read
    from tests.running import Outcome

pytestmark = pytest.mark.broker

LOG_STARTS = "log-start-offset-checkpoint"
COMPLAINT = re.compile(r"ERROR|WARN|FATAL|Truncat|[Cc]orrupt|Exception|[Ss]tray|[Ii]nvalid")


class Target(NamedTuple):
    """Where a partition is cut; `offset` is what the option means, by the reference."""

    label: str
    offset: int
    option: str = "--to-offset"
    value: int | None = None

    def arguments(self) -> list[object]:
        if self.option == "--to-offset":
            return [self.option, self.offset]
        return [self.option] if self.value is None else [self.option, self.value]


class Expected(NamedTuple):
    """What must be left of a partition, by the reference; `first_offset`: the log start before."""

    target: Target
    log: Log
    is_cut: bool
    first_offset: int
    log_start_offset: int
    uncommitted: list[Incoming]
    committed: list[Incoming]
    stable_end: int


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> CutTopic:
    """A log dir after kill -9, and what a client had read of it; not to be changed."""
    return once_per_run(tmp_path_factory, "cut-topic", make_cut_topic)


# --- the reference --------------------------------------------------------------------------------


def choose_targets(made: CutTopic, logs: list[Log]) -> list[Target]:
    """A target for each partition."""
    high_watermarks = read_offset_lines(made.log_dir / HIGH_WATERMARKS, TOPIC)
    log_starts = read_offset_lines(made.log_dir / LOG_STARTS, TOPIC)
    targets = []
    for number, log in enumerate(logs):
        if number == TRIMMED[1]:
            target = Target("at a moved log start", log_starts[number])
        elif number == TRIMMED[2]:
            target = Target("below the first segment", log.segments[0] - 10)
        else:
            high_watermark = min(high_watermarks[number], log.end_offset)
            target = _targets(log, made.read[number].uncommitted.records, high_watermark)[number]
        targets.append(target)
    # On a slow machine the high watermark may have come up to the log end.
    assert len({each.offset for each in targets}) >= PARTITIONS_COUNT - 1
    return targets


def _targets(log: Log, records: list[Incoming], high_watermark: int) -> list[Target]:
    """Those for the partitions that have all their segments; the last one is TRIMMED[0]'s."""
    batches, segments = log.batches, log.segments
    aborts = [each.base_offset for each in batches if each.marker == "ABORT"]
    commits = [each.base_offset for each in batches if each.marker == "COMMIT"]
    plain = [each.base_offset for each in batches if each.producer_id < 0]
    epochs = {each.leader_epoch: each.base_offset for each in reversed(batches)}
    first, recovered, latest = sorted(epochs)
    unended = [each for each in transactions(batches) if each.marker is None]
    # Of three that overlap: the first one has its second batch behind the beginning of the second.
    outer, inner = [each for each in transactions(batches) if each.first_offset > segments[3]][1:3]
    assert outer.first_offset < inner.first_offset < outer.data[1].base_offset
    in_batch = inner.first_offset + 1
    time_ms = next(each.timestamp_ms for each in records if each.offset == in_batch)
    return [
        Target("before an ABORT marker", aborts[1]),
        Target("behind an ABORT marker", aborts[-1] + 1),
        Target("before a COMMIT marker", commits[4]),
        Target("before an epoch change", epochs[recovered] - 1),
        Target("at an epoch change", epochs[latest]),
        Target("behind an epoch change", epochs[latest] + 1),
        Target("before a segment seam", segments[1] - 1),
        Target("at a seam, in a transaction", segments[2]),
        Target("behind a segment seam", segments[3] + 1),
        Target("inside of a batch", plain[-3] + 2),
        Target("at the log start", 0),
        Target("at the log end", log.end_offset),
        Target("in an open transaction", unended[0].data[-1].base_offset),
        Target("in an ended transaction", outer.data[1].base_offset),
        Target("high watermark", high_watermark, "--to-hw"),
        Target("leader epoch", epochs[recovered], "--to-leader-epoch", first),
        Target("time", in_batch, "--to-time", time_ms),
        Target("behind a COMMIT marker", commits[-4] + 1),
    ]


def expect(made: CutTopic) -> list[Expected]:
    """What truncations of all partitions must leave."""
    logs = read_logs(made.log_dir)
    log_starts = read_offset_lines(made.log_dir / LOG_STARTS, TOPIC)
    found = []
    for number, target in enumerate(choose_targets(made, logs)):
        log = logs[number].cut(target.offset)
        uncommitted, _ = made.read[number]
        left = [each for each in uncommitted.records if each.offset < log.end_offset]
        found.append(
            Expected(
                target=target,
                log=log,
                is_cut=target.offset < logs[number].end_offset,
                first_offset=log_starts.get(number, 0),
                log_start_offset=min(log_starts.get(number, 0), log.end_offset),
                uncommitted=left,
                committed=read_committed(log, left),
                stable_end=stable_end(log),
            )
        )
    return found


def price_of(before: Log, expected: Expected) -> dict[str, Any]:
    """Counts over what goes, and by what becomes of them the transactions that lose something."""
    end = expected.log.end_offset
    counts = dict.fromkeys(("reopened", "removed", "shortened"), 0)
    for each in transactions(before.batches):
        if each.marker is not None and each.marker.base_offset < end:
            continue
        if each.first_offset >= end:
            counts["removed"] += 1
        elif each.marker is not None:
            counts["reopened"] += 1
        elif each.data[-1].last_offset >= end:
            counts["shortened"] += 1
    gone = [each for each in before.batches if each.last_offset >= end]
    return {
        "cut_start_offset": end,
        "cut_end_offset": before.end_offset,
        "batches_count": len(gone),
        "records_count": sum(
            max(each.last_offset + 1 - max(each.base_offset, expected.first_offset), 0)
            for each in gone
            if not each.marker
        ),
        "transactions_count": counts,
    }


# --- eoctl ----------------------------------------------------------------------------------------


def truncate_all(
    eoctl: Callable[..., Outcome], log_dir: Path, wanted: list[Expected]
) -> list[dict[str, Any]]:
    """Cut each partition; returns the price of each cut, {} where nothing was to be cut."""
    prices: list[dict[str, Any]] = []
    for number, (target, log, *_) in enumerate(wanted):
        path = log_dir / f"{TOPIC}-{number}"
        arguments = (*target.arguments(), "--apply", "--output", "jsonl")
        done = eoctl("truncate", path, *arguments)
        assert done.status == 0, (target, done.errors)
        rows = [json.loads(each) for each in done.text.splitlines()]
        assert rows[0]["kind"] == "truncation"
        assert rows[0]["target_offset"] == target.offset, target
        assert rows[0]["end_after_restart"] == log.end_offset, target
        prices.append(next((each for each in rows if each["kind"] == "price"), {}))
    assert [bool(each) for each in prices] == [each.is_cut for each in wanted]
    return prices


def journals(log_dir: Path) -> list[Path]:
    return sorted(log_dir.with_name(f"{log_dir.name}.eoctl").iterdir())


def require_no_undo(eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    """A broker ran: it is refused, all of them and each one, and nothing is touched."""
    place = log_dir.with_name(f"{log_dir.name}.eoctl")
    (log_dir / ".lock").touch()  # a clean stop takes it away, and any command that locks makes it
    before = [tree_of(each, directory_times=True) for each in (log_dir, place)]
    paths = journals(log_dir)
    for given in (paths, paths[-1:], paths[:1]):
        refused = eoctl("undo", *given)
        assert refused.status == 4, refused.errors
        assert refused.text == ""
    after = [tree_of(each, directory_times=True) for each in (log_dir, place)]
    assert [difference(*each) for each in zip(before, after, strict=True)] == [[], []]


# --- the judges -----------------------------------------------------------------------------------


def require_quiet_load(broker: Broker) -> None:
    for number in range(PARTITIONS_COUNT):
        said = broker.log_lines(f"{TOPIC}-{number}")
        assert any("Completed load of Log" in each for each in said), number
        assert [each for each in said if COMPLAINT.search(each)] == []
    assert broker.error_lines() == []


def require_read(read: list[Read], wanted: list[Expected]) -> None:
    """A client reads what the reference says, from the log start to both of the ends."""
    for (uncommitted, committed), each in zip(read, wanted, strict=True):
        assert uncommitted.end_offset == each.log.end_offset, each.target
        assert committed.end_offset == each.stable_end, each.target
        starts = (uncommitted.log_start_offset, committed.log_start_offset)
        assert starts == (each.log_start_offset,) * 2, each.target
        assert uncommitted.records == each.uncommitted, each.target
        assert committed.records == each.committed, each.target


@pytest.mark.exhaustive
def test_the_reference_is_what_a_client_reads(made: CutTopic) -> None:
    """Of the whole log, so that it may judge what is left of it; prints the targets."""
    logs, wanted = read_logs(made.log_dir), expect(made)
    for log, (uncommitted, committed) in zip(logs, made.read, strict=True):
        assert read_committed(log, uncommitted.records) == committed.records
        assert (stable_end(log), log.end_offset) == (committed.end_offset, uncommitted.end_offset)
        assert 0 < len(committed.records) < len(uncommitted.records)
    print(f"\n{'target':28}offset  end  LSO  uncommitted  committed  reopened")
    for log, each in zip(logs, wanted, strict=True):
        words = " ".join(map(str, each.target.arguments()))
        reopened = price_of(log, each)["transactions_count"]["reopened"]
        print(
            f"{each.target.label:28}{each.target.offset:6} {each.log.end_offset:4}"
            f" {each.stable_end:4} {len(each.uncommitted):12} {len(each.committed):10}"
            f" {reopened:9}  {words}"
        )


@pytest.mark.exhaustive
def test_a_broker_and_its_clients_go_on(
    made: CutTopic, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """It ends where it was said, readers get what is left, and writers go on; then no way back."""
    wanted = expect(made)
    log_dir = copy_log_dir(made.log_dir, tmp_path / "log-dir")
    prices = truncate_all(eoctl, log_dir, wanted)
    for log, each, price in zip(read_logs(made.log_dir), wanted, prices, strict=True):
        right = price_of(log, each)
        assert {name: price[name] for name in right if price} == (right if price else {})

    with Broker(log_dir) as broker:
        require_quiet_load(broker)
        require_read(consume_all(broker.bootstrap), wanted)
        committed_later = write_on(broker, log_dir)
        read = consume_all(broker.bootstrap)
        beside = eoctl("undo", *journals(log_dir))
        assert (beside.status, f"process {broker.pid} holds" in beside.errors) == (4, True)
        broker.stop()
        require_quiet_load(broker)
    require_written(made, wanted, read, committed_later, read_logs(log_dir))
    require_no_undo(eoctl, log_dir)


@pytest.mark.exhaustive
def test_undo_and_a_broker_that_ran_in_between(
    made: CutTopic, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """All is as it was, also to a broker; once one has run over what was cut it is too late."""
    wanted = expect(made)
    undone, started = (copy_log_dir(made.log_dir, tmp_path / name) for name in ("undone", "ran"))
    original = tree_of(undone, directory_times=True)
    for log_dir in (undone, started):
        truncate_all(eoctl, log_dir, wanted)
    truncated = tree_of(started)
    assert len(difference(original, tree_of(undone))) > PARTITIONS_COUNT
    done = eoctl("undo", *journals(undone))
    assert done.status == 0, done.errors
    assert difference(original, tree_of(undone, directory_times=True)) == []
    assert leftovers(undone) == []

    def read_undone() -> list[Read]:
        with Broker(undone) as broker:
            require_quiet_load(broker)
            read = consume_all(broker.bootstrap)
            broker.kill()
            return read

    def start_and_stop() -> None:
        with Broker(started) as broker:
            require_quiet_load(broker)

    with ThreadPoolExecutor(2) as threads:
        read, stopped = threads.submit(read_undone), threads.submit(start_and_stop)
    stopped.result()
    assert read.result() == made.read
    require_equal_files(truncated, tree_of(started), wanted)
    require_no_undo(eoctl, started)


def require_equal_files(
    ours: dict[str, Entry], theirs: dict[str, Entry], wanted: list[Expected]
) -> None:
    """The broker has kept the log, and made aborted transactions and the producer state anew.

    Of its indexes no more can be said: those of live appends have fewer entries.
    """
    for number, each in enumerate(wanted):
        if not each.is_cut:
            continue  # its snapshot is the broker's alone
        state = f"{each.log.end_offset:020d}.snapshot"
        names = [
            name
            for name in {*ours, *theirs}
            if name.startswith(f"{TOPIC}-{number}/") and name.endswith((".log", ".txnindex", state))
        ]
        assert sum(name.endswith(".log") for name in names) == len(each.log.segments)
        for name in names:
            found = [tree[name].data if name in tree else None for tree in (ours, theirs)]
            assert found[0] == found[1], name


# --- writing on -----------------------------------------------------------------------------------

LATER = (("c", 2, True), ("a", 3, True), ("b", 2, False), ("c", 1, False), ("b", 4, True))
# What ends a transaction that a truncation has left open. Those that `a` and `b` have opened last
# are aborted by their next instances, in all partitions; `c` has none, and the next one goes on.
NEXT_MARKERS = {b"a": "ABORT", b"b": "ABORT", b"c": "COMMIT"}


def write_on(broker: Broker, log_dir: Path) -> list[tuple[bytes, bytes]]:
    """Go on with the same transactional ids; returns keys and values of what is committed."""
    author = Author(log_dir)
    author.connect(broker.bootstrap)
    committed = []
    for tid, count, is_committed in LATER:
        author.begin(tid)
        records = author.send(tid, count)
        if is_committed:
            author.commit(tid)
            committed += records
        else:
            author.abort(tid)
    return committed + author.send("idempotent", 2)


def require_written(
    made: CutTopic,
    wanted: list[Expected],
    read: list[Read],
    committed_later: list[tuple[bytes, bytes]],
    logs: list[Log],
) -> None:
    """What a client has read is what was left and what came, and what the final logs hold."""
    before = producers_of(read_logs(made.log_dir)[0], made.read[0].uncommitted.records)
    last = 1 << 62
    markers = [
        Batch(0, last, last, 0, before[key].producer_id, 0, is_transactional=True, marker=kind)
        for key, kind in NEXT_MARKERS.items()
    ]
    for old, log, found in zip(wanted, logs, read, strict=True):
        ended = Log(old.log.segments, [*old.log.batches, *markers])
        kept = read_committed(ended, old.uncommitted)
        records = found.committed.records
        assert records[: len(kept)] == kept, old.target
        later = [(each.key, each.value) for each in records[len(kept) :]]
        assert later == committed_later, old.target

        assert log.batches[: len(old.log.batches)] == old.log.batches
        data = {
            offset
            for each in log.batches
            if not each.marker
            for offset in range(each.base_offset, each.last_offset + 1)
            if offset >= old.log_start_offset
        }
        assert {each.offset for each in found.uncommitted.records} == data
        assert read_committed(log, found.uncommitted.records) == records, old.target
        ends = (found.committed.end_offset, found.uncommitted.end_offset, stable_end(log))
        assert ends == (log.end_offset,) * 3, old.target
        after = producers_of(log, found.uncommitted.records)
        for key in NEXT_MARKERS:
            assert after[key].producer_id == before[key].producer_id
            assert after[key].producer_epoch > before[key].producer_epoch


def producers_of(log: Log, records: list[Incoming]) -> dict[bytes, Batch]:
    """The last batch of each transactional id: it is the key of its records."""
    keys = {each.offset: each.key for each in records}
    return {
        keys[each.base_offset] or b"": each
        for each in log.batches
        if each.is_transactional and each.base_offset in keys
    }
