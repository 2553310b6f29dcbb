"""What `eoctl check` says a start will do to a partition, and what Kafka then does.

The states are those of `tests.cases.load_states`. 4.3.1's UnifiedLog loads each of them, in one JVM:
its log end, or the exception that ends the broker, and every file of it are as predicted. A broker
does the same with those that it survives, all in one log dir, and with some that end it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.broker.test_start_prediction import END, digests, wait_for_deletions
from tests.cases.files import checkpoint
from tests.cases.load_states import LoadState, load_states
from tests.drawn import drawn
from tests.kafka import jars
from tests.kafka.broker import KEPT, Broker, BrokerError
from tests.kafka.coordinator_answers import has_compiler

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not has_compiler(), reason="Java has no compiler here"),
]

PROGRAM = Path(__file__).parents[1] / "kafka/LoadLogs.java"
# How large an index may grow; eoctl is told it by the metadata, which there is none of here.
INDEX_BYTES = 10_485_760
SETTINGS = (f"segment.index.bytes={INDEX_BYTES}", "index.interval.bytes=4096")
STATES = load_states()
RUNS = 16
WORDS = {"creates": "created", "deletes": "deleted", "renames": "deleted"}


class Loaded(NamedTuple):
    """What the loader said of a directory: log end offset, or what ended it."""

    end_offset: int | None
    error: str


def make_log_dirs(states: dict[str, LoadState], out: Path) -> dict[str, Path]:
    """Write the states to two log dirs; return the directory of each."""
    rows: dict[Path, dict[str, list[tuple[object, ...]]]] = {}
    paths = {}
    for name, state in states.items():
        log_dir = out / ("clean" if state.is_clean else "crash")
        paths[name] = path = log_dir / f"{name}-0"
        path.mkdir(parents=True)
        for file, data in state.files.items():
            (path / file).write_bytes(data)
        lines = rows.setdefault(log_dir, {"recovery-point": [], "log-start": []})
        lines["recovery-point"].append((name, 0, state.recovery_point))
        if state.log_start is not None:
            lines["log-start"].append((name, 0, state.log_start))
    for log_dir, lines in rows.items():
        for kind, found in lines.items():
            (log_dir / f"{kind}-offset-checkpoint").write_bytes(checkpoint(found))
        if log_dir.name == "clean":
            (log_dir / ".kafka_cleanshutdown").touch()
    return paths


def load(states: dict[str, LoadState], paths: dict[str, Path]) -> dict[str, Loaded]:
    """Let Kafka load them all."""
    arguments = []
    for name, path in paths.items():
        state = states[name]
        kind = "clean" if state.is_clean else "crash"
        arguments += [str(path), str(state.log_start or 0), str(state.recovery_point), kind]
    done = subprocess.run(
        jars.java_command(
            "-Xmx512M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *jars.quick_start(),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            str(PROGRAM),
            *SETTINGS,
            "--",
            *arguments,
        ),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = {}
    for line in done.stdout.splitlines():
        path, end, _, _, error = line.split("\t")
        found[Path(path).name.removesuffix("-0")] = Loaded(None if end == "-" else int(end), error)
    return found


def contents(paths: dict[str, Path]) -> dict[str, dict[str, bytes]]:
    return {
        name: {each.name: each.read_bytes() for each in path.iterdir()}
        for name, path in paths.items()
    }


@pytest.mark.share(1)
@pytest.mark.parametrize("number", range(RUNS))
def test_a_load_does_what_was_predicted(
    tmp_path: Path, eoctl: Callable[..., Any], number: int
) -> None:
    states = dict([*STATES.items()][number::RUNS])
    paths = make_log_dirs(states, tmp_path)
    before = contents(paths)
    outcome = eoctl("check", "--predict", "--now", "wall", "--output", "jsonl",
                    *sorted({path.parent for path in paths.values()}))  # fmt: skip
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    loaded = load(states, paths)
    after = contents(paths)
    predicted = {each["topic"]: each for each in rows if each["kind"] == "partition"}
    changes: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for each in rows:
        if each["kind"] == "start_change":
            path = Path(each["path"])
            changes[path.parent.name.removesuffix("-0")][path.name] = each
    wrong = {}
    for name in states:
        end_offset = predicted[name]["start_end_offset"]
        if end_offset != loaded[name].end_offset:
            wrong[name] = [predicted[name]["start"], end_offset, loaded[name]]
        elif end_offset is not None:
            reported = changes[name]
            said = {file: WORDS.get(each["action"], "changed") for file, each in reported.items()}
            found = changed_files(before[name], after[name])
            sizes = {file: each["size_bytes"] for file, each in reported.items()}
            is_as_long = all(
                size in {None, len(after[name][file])}
                for file, size in sizes.items()
                if file in after[name]
            )
            if said != found or not is_as_long:
                wrong[name] = [said, found, sizes]
    assert not wrong


def changed_files(before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, str]:
    """Tell what became of the files that are others."""
    found = {}
    for name in before.keys() | after.keys():
        if name not in before:
            found[name] = "created"
        elif name not in after:
            found[name] = "deleted"
        elif before[name] != after[name]:
            found[name] = "changed"
    return found


# A log dir is lost, or the broker ends, by these before any log is loaded.
_NOT_LOADED = ("epochs-negative", "epochs-words")


def one_log_dir(states: dict[str, LoadState], out: Path, eoctl: Callable[..., Any]) -> Path:
    """Make a log dir whose topic s has a partition for each state."""
    assert eoctl("init", out, "--topic", f"s:{len(states)}", "--no-internal-topics", "--broker-version",
        jars.release(), "--apply",
                 "--config", "s:segment.index.bytes=16384", "--no-backup",
                 "--i-accept-the-loss").status == 0  # fmt: skip
    points, starts = [], []
    for number, state in enumerate(states.values()):
        path = out / f"s-{number}"
        for each in path.iterdir():
            if each.name != "partition.metadata":
                each.unlink()
        for file, data in state.files.items():
            (path / file).write_bytes(data)
        points.append(("s", number, state.recovery_point))
        if state.log_start is not None:
            starts.append(("s", number, state.log_start))
    (out / "recovery-point-offset-checkpoint").write_bytes(checkpoint(points))
    (out / "log-start-offset-checkpoint").write_bytes(checkpoint(starts))
    marker = out / ".kafka_cleanshutdown"
    if next(iter(states.values())).is_clean:
        marker.touch()
    else:
        marker.unlink(missing_ok=True)
    return out


def predicted_by(eoctl: Callable[..., Any], log_dir: Path) -> list[dict[str, Any]]:
    outcome = eoctl("check", "--predict", "--now", "wall", "--output", "jsonl", log_dir)
    return [json.loads(line) for line in outcome.text.splitlines()]


@pytest.mark.share(1)
@pytest.mark.parametrize("is_clean", [False, True], ids=["crash", "clean"])
def test_a_broker_does_what_was_predicted(
    tmp_path: Path, eoctl: Callable[..., Any], is_clean: bool
) -> None:
    """One start judges all the states that a broker survives; `make test` draws 60 of them."""
    states = {
        name: state
        for name, state in STATES.items()
        if state.is_clean is is_clean and not name.startswith(_NOT_LOADED)
    }
    sample = {name: states[name] for name in drawn(states, 60)}
    survived = _survived(tmp_path / "first", sample, eoctl)
    log_dir = one_log_dir(survived, tmp_path / "kafka", eoctl)
    rows = predicted_by(eoctl, log_dir)
    before = digests([log_dir])
    broker = Broker(log_dir, overrides={**KEPT, "log.segment.delete.delay.ms": "100"})
    ends: dict[int, int] = {}
    try:
        broker.start()
        wait_for_deletions([log_dir])
        broker.stop()
        for line in broker.log_lines():
            found = END.search(line)
            name = re.search(r"dir=\S*/s-(\d+)\b", line)
            if found is not None and name is not None:
                ends[int(name[1])] = int(found[1])
    finally:
        broker.close()
    names = [*survived]
    predicted = {
        names[each["partition"]]: each["start_end_offset"]
        for each in rows
        if each["kind"] == "partition" and each["topic"] == "s"
    }
    assert {names[number]: end for number, end in ends.items()} == predicted
    changes = {
        Path(each["path"]): WORDS.get(each["action"], "changed")
        for each in rows
        if each["kind"] == "start_change"
    }
    after = digests([log_dir])
    wrong: dict[str, list[Any]] = defaultdict(list)
    for path in before.keys() | after.keys() | changes.keys():
        if path.parent.parent != log_dir or not path.parent.name.startswith("s-"):
            continue
        found_change = None
        if before.get(path) != after.get(path):
            found_change = (
                "created" if path not in before else "deleted" if path not in after else "changed"
            )
        if changes.get(path) != found_change:
            name = names[int(path.parent.name[2:])]
            wrong[name].append((path.name, changes.get(path), found_change))
    assert not wrong


def _survived(
    out: Path, states: dict[str, LoadState], eoctl: Callable[..., Any]
) -> dict[str, LoadState]:
    """Return the states that do not end a broker, as predicted."""
    make_log_dirs(states, out)
    log_dirs = sorted(each for each in out.iterdir() if each.is_dir())
    outcome = eoctl("check", "--now", "wall", "--output", "jsonl", *log_dirs)
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    loaded = {
        each["topic"]
        for each in rows
        if each["kind"] == "partition" and each["start_end_offset"] is not None
    }
    return {name: state for name, state in states.items() if name in loaded}


# One state for each kind of end, and words of the broker.
DEATHS = {
    "back-no-index.clean": "InvalidOffsetException",
    "name-above.crash": "Split operation is only permitted",
    "name-last.middle": "Split operation is only permitted",
    "far-torn.crash": "NoSuchElementException",
    "far-zeros.crash": "CorruptRecordException",
    "swap-zeros.clean": "CorruptRecordException",
    "middle-zeros.above": "CorruptRecordException",
    "abort-back.crash": "must increase sequentially",
    "txn-same-first.crash": "which was not started",
    "control-key-short.crash": "InvalidRecordException",
    "broken-out.crash": "InvalidTxnStateException",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", DEATHS)
def test_a_broker_ends_as_predicted(tmp_path: Path, eoctl: Callable[..., Any], name: str) -> None:
    log_dir = one_log_dir({name: STATES[name]}, tmp_path / "kafka", eoctl)
    rows = predicted_by(eoctl, log_dir)
    row = next(each for each in rows if each["kind"] == "partition" and each["topic"] == "s")
    assert row["start_end_offset"] is None
    broker = Broker(log_dir, overrides=KEPT)
    try:
        with pytest.raises(BrokerError):
            broker.start()
        assert any(DEATHS[name] in line for line in broker.log_lines())
    finally:
        broker.close()
