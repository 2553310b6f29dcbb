"""What was acknowledged and is not there: every command says which offsets, and none ends with 0.

The judge is the log dir itself before it was damaged: its checkpoints, and the end of its logs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.arrow_files import ArrowTree, open_tree
from storage.files import file_systems
from storage.files.file_systems import register_default, register_file_system
from tests.damage.planted import layout
from tests.remote_trees import watched
from tests.writing import NEW_TOPIC, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.remote_trees import WatchedHandler

LOG = f"{0:020d}.log"
METADATA = "__cluster_metadata-0"
FINDINGS, SKIPPED = 1, 5


@pytest.fixture
def kafka(golden: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of one partition of a golden log dir and its metadata, with their checkpoint lines."""

    def copy(state: str, *names: str) -> Path:
        source, target = golden("kafka-4.3.1") / state, tmp_path / state
        target.mkdir()
        for path in source.iterdir():
            if path.is_file():
                shutil.copy2(path, target)
        for name in (METADATA, *names):
            shutil.copytree(source / name, target / name)
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in target.glob("*-offset-checkpoint"):
            rows = layout.read_lines(path)
            layout.write_lines(path, [row for row in rows if f"{row[0]}-{row[1]}" in names])
        return target

    return copy


def remove_logs(log_dir: Path) -> None:
    for path in layout.log_files(log_dir / "txn-1"):
        path.unlink()


def remove_directory(log_dir: Path) -> None:
    shutil.rmtree(log_dir / "txn-1")


def empty_directory(log_dir: Path) -> None:
    for path in (log_dir / "txn-1").iterdir():
        path.unlink()


def cut_batches(log_dir: Path) -> None:
    """The last two, whole, so that no tail is torn."""
    log = log_dir / "plain-0" / LOG
    layout.write(log, log.read_bytes()[: layout.batch_at(log, 8).pos])


def cut_bytes(log_dir: Path) -> None:
    log = log_dir / "plain-0" / LOG
    layout.write(log, log.read_bytes()[:-100])


def remove_first_segment(log_dir: Path) -> None:
    layout.log_files(log_dir / "rolled-0")[0].unlink()


def remove_middle_segment(log_dir: Path) -> None:
    layout.log_files(log_dir / "rolled-0")[1].unlink()


def log_start_beyond(log_dir: Path) -> None:
    layout.set_offset(log_dir, "log-start", "plain-0", 999)


# The offsets are facts of the directories: of the first two segments of `rolled-0`, of the last two
# batches of `plain-0`, and the high watermark of `txn-1`.
LOSSES: list[tuple[Callable[[Path], None], str, str]] = [
    (remove_logs, "txn-1", "offsets 0 to 293 (294)"),
    (remove_directory, "txn-1", "offsets 0 to 293 (294)"),
    (empty_directory, "txn-1", "offsets 0 to 293 (294)"),
    (cut_batches, "plain-0", "offsets 141 to 178 (38)"),
    (cut_bytes, "plain-0", "offsets 160 to 178 (19)"),
    (remove_first_segment, "rolled-0", "offsets 0 to 24 (25)"),
    (remove_middle_segment, "rolled-0", "offsets 25 to 49 (25)"),
    (log_start_beyond, "plain-0", "offsets 0 to 178 (179)"),
]
READERS = {
    "check --jobs 1": FINDINGS,
    "describe": FINDINGS,
    "loss": FINDINGS,
    "duplicates": SKIPPED,
    "producers": SKIPPED,
    "spark-audit --engine local --jobs 1": SKIPPED,
    "txn list": SKIPPED,
    "export --engine local --jobs 1": SKIPPED,
    "consume": SKIPPED,
}


def reported_wrongly(
    eoctl: Callable[..., Any], log_dir: Path, name: str, offsets: str
) -> list[str]:
    """Call all readers; returns those that do not tell of the offsets with their exit status."""
    wrong = []
    for reader, status in READERS.items():
        path = log_dir / name if reader == "consume" else log_dir
        if not path.exists():
            continue
        more = ["--to", log_dir.parent / "out"] if reader.startswith("export") else []
        outcome = eoctl(*reader.split(), path, *more)
        is_reported = offsets.encode() in outcome.stderr + outcome.stdout
        if outcome.status != status or not is_reported:
            wrong.append(f"{reader}: {outcome.status}: {outcome.errors[-300:]}")
    return wrong


@pytest.mark.share(3)
@pytest.mark.parametrize(("damage", "name", "offsets"), LOSSES)
def test_each_reader_tells_what_is_missing(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    log_dir = kafka("clean", name, "idem-none-0")
    damage(log_dir)
    wrong = reported_wrongly(eoctl, log_dir, name, offsets)
    if damage is log_start_beyond:  # of such a partition no producer state is made
        assert wrong.pop().startswith("txn list: 1: ")
    assert wrong == []


@pytest.mark.share(1)
@pytest.mark.parametrize(("damage", "name", "offsets"), LOSSES[:-1])
def test_repair_has_it_in_its_price(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    log_dir = kafka("clean", name, "idem-none-0")
    damage(log_dir)
    for strategy in ([], ["--strategy", "salvage"]):
        outcome = eoctl("repair", log_dir, *strategy)
        assert "nothing to repair" not in outcome.errors
        count = offsets.rpartition("(")[2].rstrip(")")
        assert f"\t{count}\t0\t1\t" in outcome.text or offsets in outcome.errors
        assert outcome.status == (0 if name == "plain-0" else SKIPPED)


@pytest.mark.share(2)
@pytest.mark.parametrize(("damage", "name", "offsets"), [LOSSES[1], LOSSES[3], LOSSES[4]])
def test_after_a_crash_too(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    """What is below the high watermark was acknowledged, however old the recovery point is."""
    log_dir = kafka("crash", name)
    damage(log_dir)
    if name == "txn-1":
        offsets = "offsets 0 to 281 (282)"
    assert reported_wrongly(eoctl, log_dir, name, offsets) == []


@pytest.mark.parametrize("damage", [cut_batches, cut_bytes])
def test_above_all_that_was_acknowledged_a_crash_may_cut(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], damage: Callable[[Path], None]
) -> None:
    log_dir = kafka("crash", "plain-0")
    layout.set_offset(log_dir, "replication", "plain-0", 141)
    damage(log_dir)
    for reader in READERS:
        path = log_dir / "plain-0" if reader == "consume" else log_dir
        more = ["--to", log_dir.parent / "out"] if reader.startswith("export") else []
        outcome = eoctl(*reader.split(), path, *more)
        assert (reader, outcome.status) == (reader, 0), outcome.errors


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["clean", "crash"])
@pytest.mark.parametrize("tail", [b"\x01", bytes(4096), b"\0" * 11 + b"\xff" * 200])
def test_bytes_behind_the_end(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], state: str, tail: bytes
) -> None:
    """A clean stop leaves none, a crash does. No record is missing: 1, unless all damage is 5."""
    log_dir = kafka(state, "plain-0")
    log = log_dir / "plain-0" / LOG
    size = log.stat().st_size
    layout.write(log, log.read_bytes() + tail)
    copied = [log_dir / "new-0", *NEW_TOPIC]
    single = {"consume": [], "copy": copied, "locate": ["--key", "x"]}
    for reader in (*READERS, "copy", "locate"):
        name = reader.split()[0]
        path = log_dir / "plain-0" if name in single else log_dir
        more = ["--to", log_dir.parent / "out"] if name == "export" else single.get(name, [])
        outcome = eoctl(*reader.split(), path, *more)
        expected = FINDINGS if name == "locate" else 0  # there is no such key
        if state == "clean" and name != "txn":
            expected = SKIPPED if name in {"duplicates", "loss", "producers"} else FINDINGS
            assert str(size) in outcome.errors + outcome.text, reader
        assert (reader, outcome.status) == (reader, expected), outcome.errors


def test_export_lists_it(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path
) -> None:
    """Given and lost are what was there: by the parser of the tests, before it was cut."""
    log_dir = kafka("clean", "plain-0")
    batches = layout.walk((log_dir / "plain-0" / LOG).read_bytes())
    cut_batches(log_dir)
    outcome = eoctl(
        *("export", log_dir, "--engine", "local", "--jobs", "1", "--to", tmp_path / "out"),
        *("--output", "jsonl"),
    )
    row = next(
        row for row in map(json.loads, outcome.text.splitlines()) if row.get("topic") == "plain"
    )
    (lost,) = map(json.loads, (tmp_path / "out" / "_lost.jsonl").read_text().splitlines())
    assert (lost["kind"], lost["check_id"]) == ("missing", "OFS-3")
    assert (lost["base_offset"], lost["last_offset"]) == (141, batches[-1].last_offset)
    assert row["records"] + lost["missing_offsets"] == sum(each.records_count for each in batches)
    assert row["lost_offsets"] == lost["missing_offsets"] == 38


def test_what_is_below_a_wrong_log_start_can_be_had(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path
) -> None:
    log_dir = kafka("clean", "plain-0")
    before = eoctl("consume", log_dir / "plain-0")
    log_start_beyond(log_dir)
    outcome = eoctl("consume", log_dir / "plain-0", "--from", "0")
    assert (outcome.status, outcome.stdout) == (0, before.stdout), outcome.errors
    assert "log start 999 lies beyond the end 179" in outcome.errors
    for isolation in ("read_uncommitted", "read_committed"):
        outcome = eoctl(
            *("export", log_dir, "--engine", "local", "--jobs", "1", "--offsets", "0.."),
            *("--to", tmp_path / isolation, "--isolation", isolation, "--output", "jsonl"),
        )
        rows = [json.loads(line) for line in outcome.text.splitlines()]
        assert [row["records"] for row in rows if row["topic"] == "plain"] == [179]
        assert outcome.status == 0


def test_transactions_below_a_wrong_log_start_count(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    """Or records of aborted ones would be given."""
    log_dir = kafka("clean", "txn-1")
    arguments = ("consume", log_dir / "txn-1", "--from", "0", "--isolation", "read_committed")
    before = eoctl(*arguments)
    layout.set_offset(log_dir, "log-start", "txn-1", 999)
    assert eoctl(*arguments).stdout == before.stdout != b""


def test_a_salvage_takes_the_loss(eoctl: Callable[..., Any], kafka: Callable[..., Path]) -> None:
    """Of an only copy: afterwards the checkpoints no longer claim what nothing has.

    The journal of the salvage still says so.
    """
    log_dir = kafka("clean", "plain-0")
    cut_batches(log_dir)
    outcome = eoctl("repair", log_dir, "--strategy", "salvage", "--apply")
    assert outcome.status == 0, outcome.errors
    outcome = eoctl("check", log_dir, "--jobs", "1")
    assert outcome.status == 1, outcome.text
    assert "38 acknowledged offsets lost by the repair of " in outcome.text
    assert "OFS-3" not in outcome.text
    found = eoctl("loss", log_dir)
    assert found.status == 1
    assert "38 acknowledged offsets lost by the repair of " in found.text


@pytest.mark.parametrize("is_cut", [False, True])
def test_another_copy_has_it_or_not(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path, *, is_cut: bool
) -> None:
    log_dir = kafka("clean", "plain-0")
    other = tmp_path / "other"
    shutil.copytree(log_dir, other)
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("node.id=1", "node.id=2"))
    cut_batches(log_dir)
    if is_cut:
        cut_batches(other)
    outcome = eoctl("replicas", "compare", log_dir / "plain-0", other / "plain-0")
    whose = "no other directory has them all" if is_cut else f"{other / 'plain-0'} has them"
    assert "offsets 141 to 178 (38) are missing" in outcome.errors
    assert f"[OFS-3]; {whose}" in outcome.errors
    assert outcome.status == SKIPPED


# --- what copies and what cuts --------------------------------------------------------------------


@pytest.mark.parametrize(("damage", "name", "offsets"), LOSSES)
def test_a_copy_tells_what_its_source_lacks(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    tmp_path: Path,
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    """The words and the exit status of `consume`."""
    log_dir = kafka("clean", name)
    damage(log_dir)
    target = make_log_dir(tmp_path / "new")
    if (log_dir / name).exists():
        arguments = ("copy", log_dir / name, target / name)
    else:
        (log_dir / "txn-0").mkdir()
        arguments = ("copy", log_dir, target, "--to-topic", "txn")
    for more in ((), ("--apply",)):
        outcome = eoctl(*arguments, *NEW_TOPIC, *more)
        assert offsets in outcome.errors
        assert outcome.status == SKIPPED, outcome.errors


@pytest.mark.share(3)
@pytest.mark.parametrize(("damage", "name", "offsets"), [LOSSES[0], *LOSSES[2:]])
def test_a_program_between_two_topics_is_told_too(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    golden: Callable[[str], Path],
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    coordinators = (golden("kafka-4.3.1") / "clean").glob("__*-*")
    others = {each.name for each in coordinators} - {METADATA}
    log_dir = kafka("clean", name, "ctp-out-0", *others)
    damage(log_dir)
    outcome = eoctl(
        *("txn", "run", log_dir / name, "--to", log_dir / "ctp-out-0", "--exec", "cat"),
        *("--transactional-id", "new", "--group", "new"),
    )
    assert offsets in outcome.errors
    assert outcome.status == SKIPPED, outcome.errors


# --- what derives files from a log ----------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize(("damage", "name", "offsets"), LOSSES)
def test_what_a_log_lacks_is_told_by_what_derives_from_it(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    """And by a search of that partition alone; the other one of the log dir is rebuilt."""
    log_dir = kafka("clean", name, "idem-none-0")
    damage(log_dir)
    index = log_dir / "idem-none-0" / f"{0:020d}.index"
    wanted = index.read_bytes()
    index.unlink()
    paths = {"rebuild": log_dir}
    if (log_dir / name).exists():
        paths |= dict.fromkeys(("duplicates", "recover-state"), log_dir / name)
    if damage is log_start_beyond:  # of such a partition no producer state is made
        del paths["recover-state"]
    for command, path in paths.items():
        # Damage is a finding of the log that the state is made from.
        is_damaged = command == "recover-state" and damage is cut_bytes
        status = FINDINGS if is_damaged else SKIPPED
        outcome = eoctl(command, path)
        assert offsets in outcome.errors
        assert (command, outcome.status) == (command, status), outcome.errors
    outcome = eoctl("rebuild", "--apply", log_dir)
    assert offsets in outcome.errors
    assert outcome.status == SKIPPED, outcome.errors
    assert index.read_bytes() == wanted


def test_a_state_below_what_is_missing_is_whole(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    log_dir = kafka("clean", "rolled-0")
    remove_middle_segment(log_dir)
    for offset, status in ((20, 0), (60, SKIPPED)):
        outcome = eoctl("recover-state", log_dir / "rolled-0", "--at-offset", offset)
        assert (offset, outcome.status) == (offset, status), outcome.errors


@pytest.mark.parametrize(("damage", "name", "offsets"), [*LOSSES[3:4], *LOSSES[5:7]])
def test_a_truncation_has_it_in_its_price(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    """With a plan it is a price; where nothing is to be cut the log is short all the same."""
    log_dir = kafka("clean", name)
    damage(log_dir)
    end = 50 if name == "rolled-0" else 60
    cut = ("truncate", log_dir / name, "--single-copy")
    outcome = eoctl(*cut, "--to-offset", end, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    (price,) = [row for row in map(json.loads, outcome.text.splitlines()) if row["kind"] == "price"]
    assert price["missing_offsets_count"] == int(offsets.rpartition("(")[2].rstrip(")"))
    assert offsets in outcome.errors
    outcome = eoctl(*cut, "--to-hw")
    assert "there is nothing to truncate" in outcome.errors
    assert offsets in outcome.errors
    assert outcome.status == SKIPPED


def test_a_truncation_of_all_replicas_tells_it_of_each(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path
) -> None:
    log_dir = kafka("clean", "plain-0")
    other = tmp_path / "other"
    shutil.copytree(log_dir, other)
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("node.id=1", "node.id=2"))
    cut_batches(other)
    outcome = eoctl(
        *("truncate", log_dir / "plain-0", "--all-replicas", other / "plain-0"),
        *("--to-offset", "60", "--output", "jsonl"),
    )
    assert outcome.status == 0, outcome.errors
    (price,) = [row for row in map(json.loads, outcome.text.splitlines()) if row["kind"] == "price"]
    assert price["missing_offsets_count"] == 0
    assert [row["missing_offsets_count"] for row in price["replicas"]] == [38]
    assert f"{other / 'plain-0'}: offsets 141 to 178 (38) are missing" in outcome.errors


# --- behind URIs ----------------------------------------------------------------------------------


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[WatchedHandler]:
    """What `sim://host/...` leads to."""
    handler, file_system = watched(tmp_path)
    register_file_system("sim", lambda uri: (ArrowTree(file_system), ""))
    yield handler
    file_systems._factories.pop("sim")
    register_default(open_tree)


@pytest.mark.parametrize(("damage", "name", "offsets"), LOSSES)
@pytest.mark.parametrize("is_whole", [True, False])
def test_behind_uris_too(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    sim: WatchedHandler,
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
    *,
    is_whole: bool,
) -> None:
    """Of a log dir, or of a partition in one, whose checkpoints lie beside it."""
    log_dir = kafka("clean", name, "idem-none-0")
    damage(log_dir)
    path = "sim://host/clean" if is_whole else f"sim://host/clean/{name}"
    if not is_whole and not (log_dir / name).exists():
        return
    assert sim.root == log_dir.parent
    for reader in ("spark-audit --engine local --jobs 1", "export --engine local --jobs 1"):
        more = ["--to", log_dir.parent / "out"] if reader.startswith("export") else []
        outcome = eoctl(*reader.split(), path, *more)
        assert offsets.encode() in outcome.stderr + outcome.stdout
        assert (reader, outcome.status) == (reader, SKIPPED), outcome.errors
    (lost,) = map(json.loads, (log_dir.parent / "out" / "_lost.jsonl").read_text().splitlines())
    assert f"{lost['base_offset']} to {lost['last_offset']}" in offsets


def test_a_checkpoint_behind_a_uri_that_cannot_be_read_is_told(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], sim: WatchedHandler
) -> None:
    log_dir = kafka("clean", "plain-0")
    arguments = ("spark-audit", "--engine", "local", "--jobs", "1", "sim://host/clean")
    assert eoctl(*arguments).status == 0
    sim.errors["clean/replication-offset-checkpoint"] = OSError("AWS Error")
    outcome = eoctl(*arguments)
    assert outcome.status == SKIPPED
    assert "sim://host/clean/replication-offset-checkpoint" in outcome.errors
    sim.errors.clear()
    (log_dir / "replication-offset-checkpoint").write_text("0\nnone\n")
    outcome = eoctl(*arguments)
    assert outcome.status == FINDINGS
    assert "sim://host/clean/replication-offset-checkpoint" in outcome.errors


def test_an_export_from_a_uri_keeps_to_the_checkpoints(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], sim: WatchedHandler
) -> None:
    """Where the log starts, and where its high watermark is, as of a local directory."""
    log_dir = kafka("clean", "plain-0")
    layout.set_offset(log_dir, "log-start", "plain-0", 50)
    layout.set_offset(log_dir, "replication", "plain-0", 141)
    counts = []
    for path in (log_dir / "plain-0", "sim://host/clean/plain-0"):
        target = sim.root / f"out-{len(counts)}"
        outcome = eoctl(
            *("export", path, "--engine", "local", "--jobs", "1", "--until", "hw"),
            *("--to", target, "--output", "jsonl"),
        )
        assert outcome.status == 0, outcome.errors
        rows = [json.loads(line) for line in outcome.text.splitlines()]
        counts.append([row["records"] for row in rows if row.get("topic") == "plain"])
    assert counts[0] == counts[1] == [91]


@pytest.mark.parametrize(
    ("state", "loss"), [("crash", LOSSES[3]), ("crash", LOSSES[4]), ("clean", LOSSES[5])]
)
def test_who_appends_is_told_what_the_log_lacks(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    tmp_path: Path,
    state: str,
    loss: tuple[Callable[[Path], None], str, str],
) -> None:
    """Offsets at its end are given out again, which is known before --apply.

    Below the recovery point that is refused.
    """
    damage, name, offsets = loss
    log_dir = kafka(state, name)
    damage(log_dir)
    (tmp_path / "lines").write_text("one\n")
    outcome = eoctl("produce", log_dir / name, tmp_path / "lines", "--single-copy")
    assert f"{offsets} are missing" in outcome.errors


def test_a_batch_of_which_only_the_frame_is_wrong_is_told(
    kafka: Callable[..., Path], eoctl: Callable
) -> None:
    """Its records are there, as other readers say; nothing is lost, but not all is right."""
    log_dir = kafka("clean", "plain-0")
    log = log_dir / "plain-0" / LOG
    data = bytearray(log.read_bytes())
    data[layout.batch_at(log, 3).pos + 16] = 1  # the magic: no checksum covers it, and it proves 2
    log.write_bytes(data)
    outcome = eoctl("loss", log_dir / "plain-0", "--output", "jsonl")
    assert outcome.status == 1
    assert "[BAT-1]; its records are there" in outcome.errors
    assert not any(json.loads(line)["kind"] == "lost" for line in outcome.text.splitlines())


def test_the_program_opens_uris_by_itself() -> None:
    """In a process that nothing else has prepared; `mock` is pyarrow's own scheme."""
    done = subprocess.run(
        [sys.executable, "-m", "eoctl", "loss", "mock:///nowhere"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "mock:///nowhere" in done.stderr
    assert "nothing here reads" not in done.stderr
