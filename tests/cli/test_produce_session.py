"""`eoctl produce --producer-session`: an input that is sent once, whatever happens in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.producing.produce_session import load_session
from tests.read_log import read_log
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

NEW = (*NEW_TOPIC, "--output", "jsonl")


class Run:
    """Calls `produce` with one input, session and partition."""

    def __init__(self, eoctl: Callable[..., Outcome], log_dir: Path) -> None:
        self._eoctl = eoctl
        self.partition = log_dir / "t-0"
        self.input = log_dir.parent / "input"
        self.session = log_dir.parent / "session"

    def call(self, *more: object, session: Path | None = None) -> Outcome:
        return self._eoctl(
            "produce", self.partition, self.input, "--apply", *NEW, "--producer-session",
            session or self.session, *more,
        )  # fmt: skip

    def report(self, *more: object) -> dict[str, Any]:
        outcome = self.call(*more)
        assert outcome.status == 0, outcome.errors
        row: dict[str, Any] = json.loads(outcome.text.splitlines()[0])
        return row

    def write(self, *values: bytes) -> None:
        self.input.write_bytes(b"".join(value + b"\n" for value in values))

    def values(self) -> list[bytes | None]:
        return [each.value for each in read_log(self.partition).records]


@pytest.fixture
def run(eoctl: Callable[..., Outcome], log_dir: Path) -> Run:
    made = Run(eoctl, log_dir)
    made.write(b"a", b"b", b"c")
    return made


def refused(outcome: Outcome, words: str, status: int = 4) -> None:
    assert outcome.status == status
    error = json.loads(outcome.errors.splitlines()[-1])
    assert words in error["message"]
    assert error["next_step"]


def test_a_second_run_sends_what_is_new(run: Run) -> None:
    first = run.report()
    assert (first["records"], first["skipped"]) == (3, 0)
    assert (run.report()["records"], run.report()["skipped"]) == (0, 3)
    run.write(b"a", b"b", b"c", b"d")
    grown = run.report()
    assert (grown["records"], grown["skipped"], grown["base_sequence"]) == (1, 3, 3)
    assert grown["producer_id"] == first["producer_id"]
    assert run.values() == [b"a", b"b", b"c", b"d"]


def test_a_plan_writes_no_session(eoctl: Callable[..., Outcome], run: Run) -> None:
    planned = eoctl("produce", run.partition, run.input, *NEW, "--producer-session", run.session)
    assert planned.status == 0
    assert not run.session.exists()
    assert not run.partition.exists()


@pytest.mark.parametrize("separator", [False, True])
def test_the_log_decides(run: Run, *, separator: bool) -> None:
    """The session was saved before anything was sent; also when records go the longer way."""
    options = ("--key-separator", ":") if separator else ()
    run.write(b"k:a", b"k:b", b"k:c")
    run.report(*options)
    saved = run.session.read_bytes()
    run.write(*(b"k:%d" % n for n in range(3)))
    refused(run.call(*options), "not the input of the session: its first 12 bytes are others")
    run.write(b"k:a", b"k:b", b"k:c", b"k:d", b"k:e")
    run.report(*options)
    run.session.write_bytes(saved)  # as if it had not been saved again
    again = run.report(*options)
    assert (again["records"], again["skipped"]) == (0, 5)
    run.session.write_bytes(saved)
    run.write(b"k:a", b"k:b", b"k:c", b"k:d", b"k:other")
    refused(run.call(*options), "is not the record that was sent")
    run.session.write_bytes(saved)
    run.write(b"k:a", b"k:b", b"k:c", b"k:d")
    refused(run.call(*options), "has more than it holds")
    assert len(run.values()) == 5


def test_a_log_that_lost_its_end_gets_it_again(eoctl: Callable[..., Outcome], run: Run) -> None:
    """As after a crash of a machine that had not synced it: the session is ahead of the log."""
    run.report("--batch-records", 1)
    run.write(b"a", b"b", b"c", b"d", b"e")
    run.report("--batch-records", 1)
    cut = eoctl("truncate", run.partition, "--to-offset", 2, "--apply", "--single-copy")
    assert cut.status == 0, cut.errors
    again = run.report()
    assert (again["records"], again["skipped"]) == (3, 2)
    assert run.values() == [b"a", b"b", b"c", b"d", b"e"]
    eoctl("truncate", run.partition, "--to-offset", 2, "--apply", "--single-copy")
    run.write(b"x", b"b", b"c", b"d", b"e")
    refused(run.call(), "its first 10 bytes are others")
    assert run.values() == [b"a", b"b"]


def test_a_producer_that_is_forgotten_is_found_in_the_log(run: Run) -> None:
    """Its state expires after a day; the snapshot of another one takes its place."""
    run.report("--timestamp", "1000", "--batch-records", 1)
    second = run.call("--now", "1000000000000", session=run.session.with_name("other"))
    assert second.status == 0, second.errors
    run.write(b"a", b"b", b"c", b"d")
    again = run.report()
    assert (again["records"], again["skipped"]) == (1, 3)
    assert run.values() == [b"a", b"b", b"c"] * 2 + [b"d"]


def test_options_must_be_the_same(run: Run) -> None:
    run.report()
    refused(run.call("--txn-records", 2), "begun with --txn-records None, not 2")
    refused(run.call("--key-separator", ":"), "begun with --key-separator None")
    refused(run.call("--producer-id", 7), "the session has producer id")
    run.partition = run.partition.with_name("u-0")
    refused(run.call(), "begun with partitions ('t-0',), not ('u-0',)")


def test_a_session_elsewhere_or_of_something_else(run: Run, log_dir: Path) -> None:
    refused(run.call("--producer-id", -1), "--producer-session needs a producer id", status=2)
    refused(run.call(session=log_dir / "session"), "lies in a log dir")
    other = log_dir.parent / "other"
    for path in (Path("/dev/zero"), log_dir.parent):
        refused(run.call(session=path), "not the session of a producer")
    for content in (b"", b"\xc1", b"\x80", b"text", b"\x81\xa6format\xa5other"):
        other.write_bytes(content)
        refused(run.call(session=other), "not the session of a producer, or damaged")
    run.report()
    good = run.session.read_bytes()
    for place in range(0, len(good), 7):
        other.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        refused(run.call(session=other), "not the session of a producer, or damaged")
    assert run.call(session=log_dir.parent / "no" / "session").status == 3
    assert set(run.values()) == {b"a", b"b", b"c"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_the_input_ended(run: Run, version: int) -> None:
    """What comes later goes into another transaction, and nothing is sent twice."""
    options = ("--txn-records", 2, "--transaction-version", version)
    first = run.report(*options)
    assert (first["records"], first["committed"]) == (3, 2)
    found = load_session(str(run.session))
    assert found is not None
    assert found.ends == (3,)
    assert run.report(*options)["records"] == 0
    run.write(b"a", b"b", b"c", b"d", b"e", b"f")
    grown = run.report(*options)
    assert (grown["records"], grown["committed"], grown["skipped"]) == (3, 2, 3)
    log = read_log(run.partition)
    assert [each.value for each in log.committed] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert not log.undecided


@pytest.mark.parametrize("separator", [False, True])
def test_a_last_line_without_its_end(run: Run, *, separator: bool) -> None:
    """It was a record; it may get its end, but not grow."""
    options = ("--key-separator", ":") if separator else ()
    run.input.write_bytes(b"k:a\nk:b")
    run.report(*options)
    run.input.write_bytes(b"k:a\nk:bc\nk:d\n")
    refused(run.call(*options), "the record before byte 9 is not the record that was sent")
    run.input.write_bytes(b"k:a\nk:b\nk:d\n")
    assert run.report(*options)["records"] == 1
    assert run.values() == ([b"a", b"b", b"d"] if separator else [b"k:a", b"k:b", b"k:d"])


def test_an_input_from_a_pipe(
    eoctl: Callable[..., Outcome], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    def call(data: bytes) -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Pipe(data)))
        return eoctl("produce", run.partition, "--apply", *NEW, "--producer-session", run.session)

    assert call(b"a\nb\n").status == 0
    assert call(b"a\nb\nc").status == 0
    cut = eoctl("truncate", run.partition, "--to-offset", 2, "--apply", "--single-copy")
    assert cut.status == 0
    refused(call(b"a\nb\nc"), "the input can be read only once")
    run.write(b"a", b"b", b"c")
    run.report()
    assert run.values() == [b"a", b"b", b"c"]
    refused(call(b"a\n"), "it ends at 2 bytes, the session had sent 6")
    refused(call(b"a\nx\nc"), "it ends at 5 bytes, the session had sent 6")
    refused(call(b"a\nx\nc\n"), "its first 6 bytes are others")
