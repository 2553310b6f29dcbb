"""`eoctl consume` by formats of kcat, over all partitions of a topic, and the last N records."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubled_logs import Said, Sent, write_log
from tests.kafka.jars import tool
from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE_S = 60
# Letters that kcat has, too.
FORMATS = [r"%t %p %o %k %s\n", r"%T|%K|%S|%h\n", r"%R%k\x41\t%%\r\n"]


@pytest.mark.kcat
@pytest.mark.parametrize("name", ["plain", "idem-none"])
def test_lines_are_those_of_kcat(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], name: str
) -> None:
    """From the same directory, served: headers, null keys and values, lengths and escapes."""
    log_dir = golden("kafka-4.3.1") / "clean"
    with Served(log_dir) as served:
        for form in FORMATS:
            call = [tool("kcat"), "-b", served.bootstrap, "-C", "-t", name, "-p", "0", "-e", "-q"]
            theirs = subprocess.run(
                [*call, "-o", "beginning", "-f", form],
                capture_output=True, check=True, timeout=DEADLINE_S,
            ).stdout  # fmt: skip
            ours = eoctl("consume", log_dir / f"{name}-0", "-f", form)
            assert ours.stdout == theirs
            assert ours.status == 0


def test_letters_of_rpk(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean" / "plain-0"
    rows = [json.loads(line) for line in eoctl("consume", path, "-o", "jsonl").text.splitlines()]
    expected = b"".join(
        b"%d %d %d %d %b\n" % (number, row["timestamp_ms"], -1 if value is None else len(value),
                               len(row["headers"]), value or b"")
        for number, row in enumerate(rows, 1)
        for value in [None if row["value"] is None else row["value"].encode()]
    )  # fmt: skip
    assert eoctl("consume", path, "--format", r"%i %d %V %H %v\n").stdout == expected


@pytest.mark.parametrize("form", ["%q", "%", "\\", r"\y", r"%v\x0"])
def test_formats_that_mean_nothing(
    form: str, eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    done = eoctl("consume", golden("kafka-4.3.1") / "clean" / "plain-0", "-f", form)
    assert (done.status, done.stdout) == (2, b"")
    assert "means nothing" in done.errors
    assert "try: %% and a letter of tpokKvVsSRTdhHi%" in done.errors


@pytest.mark.parametrize("form", ["json", "", "%%", r"\n"])
def test_a_format_without_a_letter_is_no_format(
    form: str, eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    done = eoctl("consume", golden("kafka-4.3.1") / "clean" / "plain-0", "-f", form)
    assert (done.status, done.stdout) == (2, b"")
    assert "nothing of the record is in it" in done.errors


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three partitions whose records are interleaved, one of which goes back in time."""
    times = [[10, 40, 30, 70], [20, 20, 60], [20, 50]]
    for number, own in enumerate(times):
        log = [
            Sent(7 + number, 0, place, (Said(each, b"k%d" % number, b"%d" % each),))
            for place, each in enumerate(own)
        ]
        write_log(tmp_path / "kafka" / f"t-{number}", log)
    write_log(tmp_path / "kafka" / "other-0", [Sent(1, 0, 0, (Said(1, b"k", b"v"),))])
    return tmp_path / "kafka"


def test_a_topic_by_timestamp(eoctl: Callable[..., Any], three: Path) -> None:
    """Each partition in its own order; of equally old records that of the lower partition."""
    done = eoctl("consume", three, "--topic", "t", "-f", "%T:%p:%o ")
    expected = "10:0:0 20:1:0 20:1:1 20:2:0 40:0:1 30:0:2 50:2:1 60:1:2 70:0:3 "
    assert done.text == expected
    assert "9 records of 3 partitions" in done.errors
    for count in range(10):
        few = eoctl("consume", three, "--topic", "t", "-f", "%T:%p:%o ", "--max-messages", count)
        assert few.text == "".join(f"{each} " for each in expected.split()[:count])
    rows = eoctl("consume", three, "--topic", "t", "-o", "jsonl").text.splitlines()
    assert [(row["topic"], row["partition"], row["offset"]) for row in map(json.loads, rows)] == [
        ("t", *map(int, each.split(":")[1:])) for each in expected.split()
    ]
    for option in ("--follow", "--group=g", "--exec=x"):
        assert eoctl("consume", three, "--topic", "t", option).status == 2
    assert eoctl("consume", three, "--topic", "none").status == 2


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", ["txn-0", "plain-0", "compacted-0"])
def test_the_last_records(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], name: str, isolation: str
) -> None:
    """As many as there are, whatever markers and aborted records lie between."""
    path = golden("kafka-4.3.1") / "clean" / name
    call = ("consume", path, "--isolation", isolation, "-f", r"%o\n")
    offsets = eoctl(*call).text.splitlines()
    for count in (1, 2, 10, 100, 10_000):
        done = eoctl(*call, "--from", f"-{count}")
        assert done.text.splitlines() == offsets[-count:]
    assert eoctl(*call, "--from", "-0").text == ""
    before = eoctl(*call, "--from", "-3", "--until", offsets[-1])
    assert before.text.splitlines() == offsets[-4:-1]
