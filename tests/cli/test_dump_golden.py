"""dump-segment against kafka-dump-log's own words about every golden file, line for line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAMES = ("one", "two")
DIRECTORIES = [
    ("kafka-4.3.1", "crash"),
    ("kafka-4.3.1", "recovered"),
    ("kafka-4.3.1", "clean"),
    ("kafka-4.3.1", "hard"),
    ("kafka-4.3.1", "hard-clean"),
    ("kafka-4.3.1", "tv2"),
    ("kafka-4.3.1", "tv2-clean"),
    ("kafka-4.3.1-three-brokers", "diverged/broker-1"),
    ("kafka-4.3.1-three-brokers", "diverged/broker-2"),
    ("kafka-4.3.1-three-brokers", "diverged/broker-3"),
    ("kafka-4.3.1-three-brokers", "after/broker-1"),
    ("kafka-4.3.1-three-brokers", "after/broker-2"),
    ("kafka-4.3.1-three-brokers", "after/broker-3"),
    ("kafka-0.10.2-legacy", "."),
    *(("kafka-4.4.0", f"{state}/{log_dir}") for state in ("killed", "clean") for log_dir in NAMES),
]

COMMAND = re.compile(r"(?P<path>\S+) rc=(?P<status>\d+) args=(?P<options>.*)")


class Stored(NamedTuple):
    """One run of kafka-dump-log, as the archives hold it."""

    path: str
    status: int
    options: list[str]
    words: str


def tool_dies_on_untrimmed_index(stored: Stored) -> str | None:
    """The .index of an empty log that was never trimmed: the tool dies, we say that it is empty."""
    if stored.status == 1 and "NoSuchElementException" in stored.words:
        return f"Dumping {stored.path}\n{stored.path} is empty.\n"
    return None


# Every accepted difference: a name, and what we print instead where it applies.
ACCEPTED: dict[str, Callable[[Stored], str | None]] = {
    "the tool dies on the untrimmed .index of an empty log": tool_dies_on_untrimmed_index,
}


def stored_runs(dump_dir: Path) -> Iterator[Stored]:
    for line in (dump_dir / "COMMANDS").read_text().splitlines():
        found = COMMAND.fullmatch(line)
        assert found is not None, line
        words = (dump_dir / f"{found['path']}.txt").read_bytes().decode("utf-8", "replace")
        yield Stored(found["path"], int(found["status"]), found["options"].split(), words)


@pytest.mark.share(8)
@pytest.mark.parametrize(("archive", "directory"), DIRECTORIES)
def test_text_equals_the_tools(
    archive: str,
    directory: str,
    golden: Callable[[str], Path],
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paths, lines, order and closing lists of every file are the tool's; so is the status."""
    root = golden(archive)
    monkeypatch.chdir(root / directory)
    different, accepted, compared = [], dict.fromkeys(ACCEPTED, 0), 0
    release = () if archive == "kafka-4.4.0" else ("--kafka-release", "4.3")
    for stored in stored_runs(golden(f"{archive}.dump") / directory):
        outcome = eoctl("dump-segment", "--show-secrets", *release, *stored.options, stored.path)
        ours = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
        ours = ours.replace(f"{root / directory}/", "")
        wanted, status = stored.words.replace(f":{directory}/", ":"), stored.status
        wanted = wanted.replace(f" in {directory}/", " in ")
        for name, instead in ACCEPTED.items():
            if (replacement := instead(stored)) is not None:
                wanted, status = replacement, 0
                accepted[name] += 1
        compared += wanted.count("\n")
        if ours != wanted or outcome.status != status:
            different.append(f"{stored.path} ({outcome.status} for {status})")
    assert not different
    assert compared > 100
    print(f"{archive} {directory}: {compared} lines equal, accepted differences {accepted}")
