"""What `eoctl check` says a start will do to a partition, and what Kafka's own loader then does.

The states are those of `tests.cases.load_states`. 4.3.1's UnifiedLog loads each of them, in one JVM:
its log end, or the exception that ends the broker, and every file of it are as predicted.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.cases.files import checkpoint
from tests.cases.load_states import LoadState, load_states
from tests.kafka import jars
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
            told = changes[name]
            said = {file: WORDS.get(each["action"], "changed") for file, each in told.items()}
            found = changed_files(before[name], after[name])
            sizes = {file: each["size_bytes"] for file, each in told.items()}
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
