"""Java's consumers, of 4.3 and of 2.8, read of `eoctl serve` what `eoctl consume` gives."""

from __future__ import annotations

import base64
import json
from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.kafka import client
from tests.kafka.coordinator_answers import has_compiler
from tests.kafka.java_reader import CURRENT, OLDER, read_all
from tests.serving import SERVED_DIRS, Served, environment_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not has_compiler(), reason="this Java has no compiler"),
]

ISOLATIONS = (client.READ_COMMITTED, client.READ_UNCOMMITTED)


def consumed(log_dirs: list[Path], isolation: str, eoctl: Eoctl) -> Iterator[str]:
    """The lines that a client should give, from the directories alone."""
    for place in sorted(each for log_dir in log_dirs for each in log_dir.iterdir()):
        if not place.is_dir() or place.name.startswith("__") or place.name.endswith("-delete"):
            continue
        topic, _, number = place.name.rpartition("-")
        outcome = eoctl(
            "consume", place, "--isolation", isolation, "--output", "jsonl", "--bytes", "base64"
        )
        has_gaps = log_dirs[0].name == "hard-clean" and "are missing" in outcome.errors
        assert outcome.status == (5 if has_gaps else 0), outcome.errors
        for line in outcome.stdout.splitlines():
            yield reported(topic, number, json.loads(line))


def reported(topic: str, number: str, row: dict[str, object]) -> str:
    """A row of consume as Java's program writes it."""
    headers = row["headers"]
    assert isinstance(headers, list)
    named = [(base64.b64encode(name.encode()).decode(), value) for name, value in headers]
    values = [row["key"], row["value"], *(each for pair in named for each in pair)]
    kind = row["timestamp_type"] or "NoTimestampType"
    columns = [topic, number, row["offset"], kind, row["timestamp_ms"]]
    return "\t".join(map(str, [*columns, *("-" if each is None else each for each in values)]))


def require_all_read(
    log_dirs: list[Path], eoctl: Eoctl, environment: dict[str, str] | None = None
) -> list[str]:
    """Both clients, both ways, both isolation levels; returns what is read uncommitted."""
    expected = {each: [*consumed(log_dirs, each, eoctl)] for each in ISOLATIONS}
    calls = [*product(("assign", "subscribe"), ISOLATIONS)]
    with Served(*log_dirs, environment=environment) as served:
        for release in (CURRENT, OLDER):
            for call, found in zip(calls, read_all(served.bootstrap, release, calls), strict=True):
                # Of each partition in the order of the log.
                wanted = sorted(expected[call[1]], key=_partition)
                assert sorted(found, key=_partition) == wanted, (release, call)
    return expected[client.READ_UNCOMMITTED]


def _partition(line: str) -> list[str]:
    return line.split("\t")[:2]


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.usefixtures("gaps_were_never_filled")
@pytest.mark.parametrize(("archive", "names"), SERVED_DIRS)
def test_they_read_all(
    archive: str,
    names: tuple[str, ...],
    golden: Callable[[str], Path],
    eoctl: Eoctl,
    tmp_path: Path,
) -> None:
    """Compressed, transactional, compacted, trimmed topics."""
    environment = environment_for(names, tmp_path)
    require_all_read([golden(archive) / each for each in names], eoctl, environment)


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("archive", "names"),
    [
        ("kafka-0.10.2-legacy", ("",)),
        ("kafka-1.1.1", ("one", "two")),
        ("kafka-2.8.2", ("one", "two")),
    ],
)
def test_they_read_older_formats(
    archive: str, names: tuple[str, ...], golden: Callable[[str], Path], eoctl: Eoctl
) -> None:
    """Messages of magic 0, which have no time, and 1, in all codecs of theirs."""
    read = require_all_read([golden(archive) / each for each in names], eoctl)
    kinds = {(line.partition("\t")[0][:2], line.split("\t")[3]) for line in read}
    assert {("v0", "NoTimestampType"), ("v1", "CreateTime")} <= kinds
