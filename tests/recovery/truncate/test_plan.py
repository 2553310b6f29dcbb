"""Plans of truncations, carried out, against a slow reference, against what brokers made, and rebuilt."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from recovery.changes.plans.plan import Action, encode_plan, make_plan, parse_plan
from recovery.changes.plans.preconditions import lower_offset
from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.replay.end_markers import read_marker
from recovery.replay.recover_state import recover_state
from recovery.replay.snapshots import Clock
from recovery.truncate.plan import plan_truncation
from recovery.truncate.target import TargetKind, TargetRequest
from storage.errors import CorruptError, RefusedError
from storage.file_names import TopicPartition
from storage.formats.producer_snapshot import encode_snapshot, parse_snapshot
from storage.log.segment import open_segment
from storage.producers.producer_state import ProducerStateManager
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs
from tests.truncations import (
    EPOCHS,
    LOG_START,
    Log,
    Tree,
    carry_out,
    copy_log_dir,
    expected_tree,
    open_partition,
    read_tree,
    write_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.truncate.plan import Truncation
    from storage.formats.record_batch import BatchHeader

CLOCK = Clock(0)  # nothing is expired


def plan(path: Path, offset: int, **fields: Any) -> Truncation:
    request = TargetRequest(TargetKind.OFFSET, offset, **fields)
    return plan_truncation(open_partition(path), request, clock=CLOCK)


def snapshots_of(path: Path) -> dict[int, bytes]:
    """Offset behind each batch -> the snapshot by the definition, one batch at a time."""
    manager = ProducerStateManager()
    found = {0: encode_snapshot([])}
    for log in sorted(path.glob("*.log")):
        with open_segment(log) as segment:
            for batch in segment.scan():
                header = batch.header
                is_marker = header.is_control and header.records_count
                ended = manager.append(header, read_marker(segment, batch) if is_marker else None)
                if ended is not None:
                    manager.complete(ended)
                found[header.last_offset + 1] = encode_snapshot(manager.entries())
        found.setdefault(int(log.stem), encode_snapshot(manager.entries()))
    return found


def check_plan(
    log_dir: Path, name: str, offset: int, tree: Tree, snapshots: dict[int, bytes] | None
) -> Truncation:
    """Plan, and compare all files with the reference; snapshots only where they are given."""
    found = plan(log_dir / name, offset)
    end, expected = expected_tree(tree, name, offset)
    result = carry_out(tree, found.steps, log_dir)
    assert found.target.end_offset == end
    if snapshots is not None and found.steps and end > found.log_start_offset:
        at_end = result[f"{name}/{end:020d}.snapshot"]
        assert at_end == snapshots[end]
        expected[f"{name}/{end:020d}.snapshot"] = at_end
    assert result == expected, offset
    return found


# --- every offset ---------------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["crash", "clean"])
@pytest.mark.parametrize("name", ["txn-0", "compacted-0", "rolled-0", "trimmed-0"])
def test_every_offset(state: str, name: str, golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Inside of batches, at their bounds, at the seams of segments, in gaps."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path, name)
    tree = read_tree(log_dir)
    snapshots = snapshots_of(log_dir / name)
    log = Log(tree, name)
    offsets = range(log.end_offset + 1)
    if log.end_offset > 300:
        near = {edge + by for edge in log.boundaries for by in (-1, 0, 1)}
        offsets = sorted(near & set(offsets))
    # What compaction left cannot tell what the broker's own snapshots know (SNAP-7).
    expected = None if name == "compacted-0" else snapshots
    cut_count = 0
    for offset in offsets:
        if expected is None:
            found = plan(log_dir / name, offset)
            end, files = expected_tree(tree, name, offset)
            result = carry_out(tree, found.steps, log_dir)
            at_end = f"{name}/{end:020d}.snapshot"
            assert not found.steps or (at_end in result) == (end > 0)
            result.pop(at_end, None)
            files.pop(at_end, None)
            assert result == files
        else:
            found = check_plan(log_dir, name, offset, tree, expected)
        cut_count += bool(found.steps)
        assert bool(found.steps) == (offset < log.end_offset)
    assert cut_count >= 40
    assert read_tree(log_dir) == tree  # planning changes nothing


@pytest.mark.share(3)
@pytest.mark.parametrize("version", ["v0", "v1"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_every_offset_of_old_formats(
    version: str, codec: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    name = f"{version}-{codec}-0"
    log_dir = copy_log_dir(golden("kafka-0.10.2-legacy"), tmp_path, name)
    tree = read_tree(log_dir)
    snapshots = dict.fromkeys(range(61), encode_snapshot([]))
    inside_count = 0
    for offset in range(Log(tree, name).end_offset):
        found = check_plan(log_dir, name, offset, tree, snapshots)
        inside_count += found.cut.around is not None
    assert bool(inside_count) == (codec != "none")


# --- what is left is a log ------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("state", ["crash", "clean"])
@pytest.mark.parametrize("name", ["txn-0", "rolled-0", "idem-zstd-0", "many-producers-0"])
def test_the_result_is_what_rebuilding_it_gives(
    state: str, name: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    source = golden("kafka-4.3.1") / state
    log_dir = copy_log_dir(source, tmp_path, name)
    tree = read_tree(log_dir)
    interval = {"txn-0": 512, "idem-zstd-0": 1024}.get(name, 4096)
    for offset in Log(tree, name).boundaries[1:-1:7]:
        write_tree(tree, log_dir)
        found = plan(log_dir / name, offset)
        write_tree(carry_out(tree, found.steps, log_dir), log_dir)
        result = open_partition(log_dir / name)
        end = result.log_end()
        assert end is not None
        assert end.offset == found.target.end_offset
        assert end.valid_bytes == end.files.log.file_bytes
        rebuilt = rebuild_partition(result, RebuildSettings(CLOCK.now_ms, interval))
        assert rebuilt.cut is None
        last = rebuilt.segments[-1]
        stem = f"{name}/{last.end.base_offset:020d}"
        left = read_tree(log_dir)
        assert left[f"{stem}.index"] == last.end.indexes.offset_index
        # Recovery adds the largest timestamp at the end.
        assert last.end.indexes.time_index[:-12] in {
            left[f"{stem}.timeindex"],
            left[f"{stem}.timeindex"][:-12],
        }
        assert last.end.indexes.time_index.startswith(left[f"{stem}.timeindex"])
        assert left.get(f"{stem}.txnindex", b"") == (last.txn_index or b"")
        assert rebuilt.snapshots[end.offset] == left[f"{name}/{end.offset:020d}.snapshot"]
        # Nothing is left to cut.
        assert plan(log_dir / name, offset).steps == ()


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["crash", "clean"])
@pytest.mark.parametrize("name", ["compacted-0", "txn-0", "rolled-0"])
def test_the_next_start_finds_the_snapshot_that_it_would_write(
    state: str, name: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Without the marker it recovers from the recovery point: kept snapshots above do not count."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path, name)
    (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    tree = read_tree(log_dir)
    for offset in Log(tree, name).boundaries[1:-1:5] if name != "compacted-0" else range(1, 42):
        write_tree(tree, log_dir)
        found = plan(log_dir / name, offset)
        write_tree(carry_out(tree, found.steps, log_dir), log_dir)
        if not found.target.end_offset:
            continue
        recovered = recover_state(open_partition(log_dir / name), CLOCK)
        assert recovered.offset == found.target.end_offset
        on_disk = (log_dir / name / recovered.file_name).read_bytes()
        assert parse_snapshot(on_disk) == recovered.entries, offset


def test_as_a_real_follower_was_truncated(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Broker 1 had 73 offsets, and truncated to 36 when it met broker 2; then it went on to 66."""
    three = golden("kafka-4.3.1-three-brokers")
    log_dir = copy_log_dir(three / "diverged" / "broker-1", tmp_path, "div-0")
    tree = read_tree(log_dir)
    found = plan(log_dir / "div-0", 36)
    result = carry_out(tree, found.steps, log_dir)
    after = three / "after" / "broker-1" / "div-0"
    log = result[f"div-0/{0:020d}.log"]
    assert Log(result, "div-0").end_offset == 36
    assert (after / f"{0:020d}.log").read_bytes().startswith(log)
    snapshot = f"{36:020d}.snapshot"
    assert result[f"div-0/{snapshot}"] == (after / snapshot).read_bytes()
    aborted = result[f"div-0/{0:020d}.txnindex"]
    assert len(aborted) == 2 * 34
    assert (after / f"{0:020d}.txnindex").read_bytes().startswith(aborted)
    assert result["replication-offset-checkpoint"] == tree["replication-offset-checkpoint"].replace(
        b"div 0 37", b"div 0 36"
    )
    assert result[f"div-0/{EPOCHS}"] == b"0\n1\n0 0\n"


@pytest.mark.parametrize(
    ("name", "offset"), [("rolled-0", 7), ("rolled-0", 25), ("compacted-0", 1)]
)
def test_every_half_of_it_is_a_log(
    name: str, offset: int, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """A broker may be started after any step: the log start is in the log, no segment is missing."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path, name)
    tree = with_log_start(read_tree(log_dir), name, 30)
    write_tree(tree, log_dir)
    bases = list(Log(tree, name).segments)
    found = plan(log_dir / name, offset)
    for count in range(len(found.steps) + 1):
        half = carry_out(tree, found.steps[:count], log_dir)
        write_tree(half, log_dir)
        log = Log(half, name)
        assert list(log.segments) == bases[: len(log.segments)]
        partition = open_partition(log_dir / name)
        assert (partition.log_start_offset or 0) <= log.end_offset
        assert partition.log_dir is not None
        point = partition.log_dir.recovery_point(partition.directory) or 0
        assert count == 0 or point <= found.target.end_offset
    write_tree(tree, log_dir)
    made = make_plan("truncate", {}, found.steps, {})
    assert parse_plan(encode_plan(made), "plan").steps == made.steps


# --- log start, first base, empty logs ------------------------------------------------------------


def with_log_start(tree: Tree, name: str, offset: int) -> Tree:
    topic, _, number = name.rpartition("-")
    lines = f"0\n2\nother 0 9\n{topic} {number} {offset}\n"
    return {**tree, LOG_START: lines.encode()}


@pytest.mark.parametrize("offset", [0, 3, 5, 6, 7, 8, 10, 12, 25, 59])
def test_log_start_inside_of_a_batch(
    offset: int, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """It is 7, in the batch with offsets 5 to 9, which goes or stays as a whole."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path, "rolled-0")
    tree = with_log_start(read_tree(log_dir), "rolled-0", 7)
    write_tree(tree, log_dir)
    found = plan(log_dir / "rolled-0", offset)
    end = found.target.end_offset
    assert found.log_start_offset == min(7, end)
    expected = expected_tree(tree, "rolled-0", offset)[1]
    result = carry_out(tree, found.steps, log_dir)
    if end > found.log_start_offset:
        expected[f"rolled-0/{end:020d}.snapshot"] = result[f"rolled-0/{end:020d}.snapshot"]
    assert result == expected
    lines = result[LOG_START].decode().splitlines()
    if end == 0:
        assert lines == ["0", "1", "other 0 9"]
    else:
        assert lines == ["0", "2", "other 0 9", f"rolled 0 {min(7, end)}"]
    assert any("below the log start" in each for each in found.notes) == (offset < 7)


def test_at_the_log_start(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """What is below it stays on the disk; the log is empty, and no producer is known."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path, "rolled-0")
    tree = with_log_start(read_tree(log_dir), "rolled-0", 10)
    write_tree(tree, log_dir)
    found = plan(log_dir / "rolled-0", 10)
    result = carry_out(tree, found.steps, log_dir)
    assert result == expected_tree(tree, "rolled-0", 10)[1]
    assert not [each for each in result if each.endswith(".snapshot")]
    assert found.producers == ()
    assert result[LOG_START] == tree[LOG_START]


@pytest.mark.parametrize("offset", [0, 24, 25, 26, 30])
def test_below_the_first_segment_all_goes(
    offset: int, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "rolled-0")
    for path in (log_dir / "rolled-0").glob(f"{0:020d}.*"):
        path.unlink()
    (log_dir / "rolled-0" / f"{24:020d}.index").write_bytes(b"junk")
    tree = with_log_start(read_tree(log_dir), "rolled-0", 27)
    write_tree(tree, log_dir)
    found = plan(log_dir / "rolled-0", offset)
    end, expected = expected_tree(tree, "rolled-0", offset)
    result = carry_out(tree, found.steps, log_dir)
    at_end = f"rolled-0/{end:020d}.snapshot"
    assert (at_end in result) == (end > 27)
    result.pop(at_end, None)
    expected.pop(at_end, None)
    assert result == expected
    assert found.cut.is_full == (offset < 25)
    if found.cut.is_full:
        assert result[f"rolled-0/{EPOCHS}"] == b"0\n0\n"
        created = [number for number, each in enumerate(found.steps) if each.path.endswith(".log")]
        assert found.steps[created[0]].action is Action.REPLACE  # before any is removed
        write_tree(result, log_dir)
        end_now = open_partition(log_dir / "rolled-0").log_end()
        assert end_now is not None
        assert end_now.offset == offset


@pytest.mark.parametrize("junk", [b"", b"\0" * 5000, b"torn batch", b"\0" * 20 + b"x" * 90])
def test_at_the_end_there_is_nothing_to_cut(
    junk: bytes, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(
        golden("kafka-4.3.1") / "crash", tmp_path, "txn-0", "__consumer_offsets-1"
    )
    path = log_dir / "txn-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + junk)
    found = plan(log_dir / "txn-0", 329)
    assert found.steps == ()
    assert found.notes[0] == "nothing to truncate: the log ends at 329"
    assert len(found.notes) == 1 + bool(junk)
    # Below it the tail goes with what is cut.
    (step,) = [each for each in plan(log_dir / "txn-0", 328).steps if each.path == str(path)]
    assert step.before is not None
    assert step.before.file_bytes - step.after_bytes > len(junk)
    assert plan(log_dir / "__consumer_offsets-1", 0).steps == ()


def test_without_a_log_dir_checkpoints_are_not_known(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "dir", "txn-0")
    alone = tmp_path / "alone" / "txn-0"
    alone.parent.mkdir()
    (tmp_path / "dir" / "txn-0").rename(alone)
    found = plan(alone, 100)
    assert {each.path.rpartition("/")[0] for each in found.steps} == {str(alone)}
    assert found.producers


# --- damage ---------------------------------------------------------------------------------------


def flip(path: Path, pos: int) -> None:
    data = bytearray(path.read_bytes())
    data[pos] ^= 0x55
    path.write_bytes(data)


def test_damage_below_the_cut(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """A broker would cut at 10, in the segment that it verifies; the next step leads there."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "rolled-0")
    batch = Log(read_tree(log_dir), "rolled-0").segments[0][2]
    assert (batch.base_offset, batch.last_offset) == (10, 14)
    path = log_dir / "rolled-0" / f"{0:020d}.log"
    flip(path, batch.pos + 100)
    for offset in (15, 17, 20, 24):
        with pytest.raises(RefusedError, match=f"position {batch.pos}") as caught:
            plan(log_dir / "rolled-0", offset)
        assert str(caught.value).count(str(path)) == 1
        assert caught.value.next_step.startswith("--to-offset 10")
    # At it and inside of it all of it goes.
    for offset in range(10, 15):
        found = plan(log_dir / "rolled-0", offset)
        assert (found.target.end_offset, found.cut.kept_bytes) == (10, batch.pos)
        assert found.producers
    assert plan(log_dir / "rolled-0", 9).target.end_offset == 5
    # The recovery point is 50: at its next start a broker would not look at the first segment.
    for offset in (50, 55):
        found = plan(log_dir / "rolled-0", offset)
        assert found.target.end_offset == offset
    # From 25 on too, but then the recovery point goes down to it.
    assert plan(log_dir / "rolled-0", 30).target.end_offset == 30


def test_damage_in_a_segment_between(golden: Callable[[str], Path], tmp_path: Path) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "rolled-0")
    lines = (log_dir / "recovery-point-offset-checkpoint").read_bytes()
    (log_dir / "recovery-point-offset-checkpoint").write_bytes(
        lines.replace(b"rolled 0 50", b"rolled 0 3")
    )
    batch = Log(read_tree(log_dir), "rolled-0").segments[0][2]
    flip(log_dir / "rolled-0" / f"{0:020d}.log", batch.pos + 100)
    with pytest.raises(RefusedError, match="offset 10"):
        plan(log_dir / "rolled-0", 55)
    # A broken frame, of which nothing can be believed.
    flip(log_dir / "rolled-0" / f"{0:020d}.log", batch.pos + 8)
    with pytest.raises(RefusedError, match="offset 10"):
        plan(log_dir / "rolled-0", 55)
    with pytest.raises(RefusedError, match="offset 10"):
        plan(log_dir / "rolled-0", 12)
    assert plan(log_dir / "rolled-0", 10).target.end_offset == 10


def test_damaged_state_is_not_known(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Below the recovery point a broker does not verify, but the producers come from there."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "rolled-0")
    for path in (log_dir / "rolled-0").glob("*.snapshot"):
        path.unlink()
    flip(log_dir / "rolled-0" / f"{0:020d}.log", 100)
    found = plan(log_dir / "rolled-0", 55)
    assert found.producers is None
    assert not [each for each in found.steps if each.path.endswith(".snapshot")]
    assert "position 0" in found.notes[-1]


@pytest.fixture(scope="module")
def made_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made") / "made-0"


@pytest.mark.exhaustive
@settings(max_examples=examples(150))
@given(damaged_logs(), logs(max_batches=4), st.data())
def test_a_broker_agrees_or_it_is_refused(
    made_dir: Path, first: bytes, second: bytes, draw: st.DataObject
) -> None:
    """Whatever is damaged: recovery of the result cuts nothing, and ends where we said."""
    made_dir.mkdir(exist_ok=True)
    for each in made_dir.iterdir():
        each.unlink()
    (made_dir / f"{0:020d}.log").write_bytes(first)
    if draw.draw(st.booleans()):
        base = 2**30
        (made_dir / f"{base:020d}.log").write_bytes(moved(second, base))
    end = open_partition(made_dir).log_end()
    assert end is not None
    near = [each.last_offset + by for each in scanned(made_dir) for by in (-1, 0, 1, 2)]
    choices = [each for each in (0, 2**30, *near) if 0 <= each < end.offset]
    if not choices:
        return
    offset = draw.draw(st.sampled_from(sorted(set(choices))))
    try:
        found = plan(made_dir, offset)
    except RefusedError:
        event("refused")
        return
    event("planned")
    tree = {f"made-0/{name}": data for name, data in read_tree(made_dir).items()}
    result = carry_out(tree, found.steps, made_dir.parent)
    write_tree({name.removeprefix("made-0/"): data for name, data in result.items()}, made_dir)
    rebuilt = rebuild_partition(open_partition(made_dir), RebuildSettings(CLOCK.now_ms))
    assert rebuilt.cut is None
    assert rebuilt.log_end_offset == found.target.end_offset <= offset


def scanned(path: Path) -> list[BatchHeader]:
    headers = []
    for log in path.glob("*.log"):
        with open_segment(log) as segment:
            headers += [each.header for each in segment.scan()]
    return headers


def moved(data: bytes, by: int) -> bytes:
    """Shift the offsets of a healthy log; no checksum covers them."""
    out = bytearray(data)
    pos = 0
    while pos < len(out):
        offset, length = struct.unpack_from(">qi", out, pos)
        struct.pack_into(">q", out, pos, offset + by)
        pos += length + 12
    return bytes(out)


# --- refusals -------------------------------------------------------------------------------------


def test_what_must_not_be_changed(golden: Callable[[str], Path], tmp_path: Path) -> None:
    names = ("txn-0", "__cluster_metadata-0")
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, *names)
    with pytest.raises(RefusedError, match="is never changed"):
        plan(log_dir / "__cluster_metadata-0", 5)
    set_aside = log_dir / f"txn-0.{'a' * 32}-stray"
    (log_dir / "txn-0").rename(set_aside)
    with pytest.raises(RefusedError, match="stray"):
        plan(set_aside, 5)
    copied = log_dir / "copied"
    set_aside.rename(copied)
    with pytest.raises(RefusedError, match="not the name of a partition"):
        plan(copied, 5)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (f"{0:020d}.log.cleaned", b"", "compaction"),
        (f"{0:020d}.index.swap", b"", "compaction"),
        ("foreign.log", b"", "DIR-9"),
        (EPOCHS, b"0\nno number\n", "DIR-7"),
        ("../replication-offset-checkpoint", b"1\n", "DIR-7"),
        ("../cleaner-offset-checkpoint", b"0\n5\n", "DIR-7"),
    ],
)
def test_what_must_be_put_right_first(
    name: str, content: bytes, reason: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "txn-0")
    (log_dir / "txn-0" / name).write_bytes(content)
    with pytest.raises(RefusedError, match=reason) as caught:
        plan(log_dir / "txn-0", 100)
    assert caught.value.next_step


# --- lines of checkpoints -------------------------------------------------------------------------

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("data", "limit", "expected"),
    [
        (b"", 5, b""),
        (b"0\n", 5, b"0\n"),
        (b"0\n1\nt 0 9\n", 5, b"0\n1\nt 0 5\n"),
        (b"0\n1\nt 0 5\n", 5, b"0\n1\nt 0 5\n"),
        (b"0\n1\nt 1 9\n", 5, b"0\n1\nt 1 9\n"),
        (b"0\n2\nu \t0  9\r\nt  0\t9", 5, b"0\n2\nu \t0  9\r\nt 0 5"),
        (b"0\n3\nt 0 9\nx 0 1\nt 0 7\n", 5, b"0\n3\nt 0 5\nx 0 1\nt 0 5\n"),
        (b"0\n2\nt 00 9\n\xc3\xa9 0 9\n", 5, b"0\n2\nt 0 5\n\xc3\xa9 0 9\n"),
    ],
)
def test_lower_offset(data: bytes, limit: int, expected: bytes) -> None:
    assert lower_offset(data, T0, limit) == expected


def test_lines_that_go() -> None:
    data = b"0\r\n 3 \r\nx 0 1\r\nt 0 9\r\ny 0 2\r\n"
    with pytest.raises(CorruptError):
        lower_offset(data, T0, 5, is_removed=True)
    data = data.replace(b" 3 ", b"3")
    assert lower_offset(data, T0, 5, is_removed=True) == b"0\r\n2\r\nx 0 1\r\ny 0 2\r\n"
    assert lower_offset(data, T0, 9, is_removed=True) == data
