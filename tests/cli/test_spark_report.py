"""`spark-audit --report-html`: the page is that of `eoctl report`, whoever has read the logs."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.damage.planted import FAULTS
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Fault
    from tests.running import Outcome

AUDIT = ("spark-audit", "--engine", "local", "--jobs", "1", "--split-bytes", "1")


@pytest.fixture
def pages(eoctl: Callable[..., Outcome], tmp_path: Path) -> Callable[..., tuple[bytes, bytes]]:
    """Both pages of a call; the audit's exit status is that of one without a page."""

    def both(
        *paths: object, audit: tuple[object, ...] = AUDIT, now: str = "dir"
    ) -> tuple[bytes, bytes]:
        ours, theirs = tmp_path / "audit.html", tmp_path / "report.html"
        options = ("--now", now, "--force")
        done = eoctl(*audit, *paths, "--report-html", ours, *options)
        assert done.status == eoctl(*audit, *paths).status, done.errors
        assert eoctl("report", *paths, "--to", theirs, *options).status in {0, 1, 3, 5}
        return ours.read_bytes(), theirs.read_bytes()

    return both


# --- the same page --------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize(
    "state",
    [
        *(f"kafka-4.3.1/{name}" for name in ("clean", "crash", "hard", "recovered", "tv2")),
        *("kafka-0.10.2-legacy/", "kafka-4.3.1-tiered/crash", "kafka-4.3.1-two-dirs/one"),
        *("kafka-1.1.1/", "kafka-3.3.2/"),
    ],
)
def test_real_directories(
    golden: Callable[[str], Path], pages: Callable[..., tuple[bytes, bytes]], state: str
) -> None:
    name, _, rest = state.partition("/")
    log_dir = golden(name) / rest
    paths = [log_dir] if [*log_dir.glob("*-[0-9]*")] else sorted(log_dir.iterdir())
    ours, theirs = pages(*paths)
    assert ours == theirs


@pytest.mark.share(1)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_damaged_directories(
    golden: Callable[[str], Path],
    pages: Callable[..., tuple[bytes, bytes]],
    tmp_path: Path,
    fault: Fault,
) -> None:
    is_legacy = fault.state == "legacy"
    source = golden("kafka-0.10.2-legacy") if is_legacy else golden("kafka-4.3.1") / fault.state
    log_dir = copy_log_dir(source, tmp_path / "kafka")
    fault.planted_in(log_dir)
    ours, theirs = pages(log_dir)
    assert ours == theirs


@pytest.mark.exhaustive
def test_copies_of_three_brokers(
    golden: Callable[[str], Path], pages: Callable[..., tuple[bytes, bytes]]
) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    ours, theirs = pages(*(root / f"broker-{number}" for number in (1, 2, 3)))
    assert ours == theirs
    assert b"part at offset 36" in ours


@pytest.mark.exhaustive
def test_some_topics(crash: Path, pages: Callable[..., tuple[bytes, bytes]]) -> None:
    ours, theirs = pages(crash, "--topic", "txn")
    assert ours == theirs
    assert b"many-producers" not in ours


@pytest.mark.exhaustive
def test_paths_as_they_are_given(
    crash: Path,
    pages: Callable[..., tuple[bytes, bytes]],
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(crash)
    ours, theirs = pages("txn-0", "./rolled-0", "../crash/plain-0")
    assert ours == theirs
    _, wanted = pages(*sorted(crash.glob("txn-*")))
    to = tmp_path / "r.html"
    eoctl(*AUDIT, f"{crash}/txn-*", "--report-html", to, "--now", "dir")
    assert to.read_bytes() == wanted


@pytest.mark.exhaustive
def test_names_that_cannot_be_sent(
    killed: Path, pages: Callable[..., tuple[bytes, bytes]], tmp_path: Path
) -> None:
    """The audit leaves a name out that is not UTF-8; the page has it all the same."""
    odd = killed.rename(tmp_path / "<b onclick='x'>\u202e")
    shutil.copytree(odd / "plain-0", os.path.join(odd, "\udcff-0"))  # noqa: PTH118 - any bytes
    ours, theirs = pages(odd)
    assert ours == theirs
    assert b"<b onclick" not in ours


def test_a_partition_without_records_and_an_empty_directory(
    pages: Callable[..., tuple[bytes, bytes]], tmp_path: Path
) -> None:
    log_dir = tmp_path / "kafka"
    (log_dir / "none-0").mkdir(parents=True)
    (log_dir / "empty-0").mkdir()
    (log_dir / "empty-0" / f"{0:020d}.log").touch()
    ours, theirs = pages(log_dir, now="1795229940000")
    assert ours == theirs


@pytest.mark.exhaustive
def test_equal_calls_give_equal_bytes(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    found = set()
    for number, (jobs, split_bytes) in enumerate((("1", "1"), ("2", "1000"), ("2", "999999"))):
        to = tmp_path / f"{number}.html"
        options = ("--jobs", jobs, "--split-bytes", split_bytes, "--now", "dir")
        eoctl("spark-audit", "--engine", "local", crash, *options, "--report-html", to)
        found.add(to.read_bytes())
    assert len(found) == 1


# --- what is kept for the next run ----------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_state_has_timelines_once_they_were_asked_for(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    state = ("--state", tmp_path / "state")
    page = ("--now", "dir", "--force", "--report-html", tmp_path / "r.html")

    def known(*options: object) -> bool:
        """Whether segments were taken from the state."""
        done = eoctl(*AUDIT, killed, *state, *options)
        return "are unchanged, and taken from" in done.errors

    assert not known()
    assert known()
    assert not known(*page)  # the state has none yet
    first = (tmp_path / "r.html").read_bytes()
    assert known(*page)
    assert (tmp_path / "r.html").read_bytes() == first
    assert known()  # without a page they stay
    assert known(*page)
    assert eoctl("report", killed, "--now", "dir", "--to", tmp_path / "o.html").status == 0
    assert first == (tmp_path / "o.html").read_bytes() == (tmp_path / "r.html").read_bytes()


@pytest.mark.exhaustive
def test_a_state_of_another_log_start_is_not_used(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    call = (*AUDIT, killed / "txn-0", "--state", tmp_path / "state", "--now", "1795229940000",
            "--force", "--report-html", tmp_path / "r.html")  # fmt: skip
    eoctl(*call)
    checkpoint = killed / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\ntxn 0 200\n")
    done = eoctl(*call)
    assert "are unchanged" not in done.errors
    report = ("report", killed / "txn-0", "--now", "1795229940000", "--to", tmp_path / "o.html")
    eoctl(*report)
    assert (tmp_path / "r.html").read_bytes() == (tmp_path / "o.html").read_bytes()


# --- what could not be read, and what must not be -------------------------------------------------


@pytest.mark.exhaustive
def test_what_the_audit_alone_could_not_read_is_at_the_top(
    crash: Path,
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an executor whose disk fails, or that has no such mount."""
    from recovery.summaries.segment import summarize_split
    from storage.errors import AccessError

    def fails(split: Any, *more: Any) -> Any:
        if "/txn-0/" in split.place.path:
            raise AccessError(OSError(5, "Input/output error"), "txn-0")
        return summarize_split(split, *more)

    monkeypatch.setattr("recovery.summaries.segment.summarize_split", fails)
    to = tmp_path / "r.html"
    done = eoctl(*AUDIT, crash, "--now", "dir", "--report-html", to)
    assert done.status == 5
    first_screen = to.read_text().partition('id="timelines"')[0]
    assert "txn-0 could not be read: their timelines are not whole" in first_screen


@pytest.mark.parametrize(
    ("arguments", "status", "reported"),
    [
        (("{}", "--report-html", "mine.html"), 4, "--force"),
        (("{}", "--report-html", "{}/r.html"), 4, "log dir"),
        (("{}", "--report-html", "{}/txn-0/r.html"), 4, "log dir"),
        (("{}", "--report-html", "here"), 2, "is a directory"),
        (("{}", "--report-html", ""), 2, "no file is named"),
        (("{}", "--report-html", "/no/such/place/r.html"), 3, "/no/such/place"),
        (("{}", "--force"), 2, "--report-html"),
        (("{}", "--now", "dir"), 2, "--report-html"),
        (("{}", "--now", "soon", "--report-html", "r.html"), 2, "soon"),
        (("s3://bucket/kafka", "--report-html", "r.html"), 2, "of this machine"),
        (("{}/nothing", "--report-html", "r.html"), 3, "nothing"),
        (("{}/nothing-*", "--report-html", "r.html"), 3, "nothing"),
        (("{}", "--topic", "none", "--report-html", "r.html"), 2, "none"),
        ((), 2, "PATH"),
    ],
)
def test_wrong_calls(
    crash: Path,
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    status: int,
    reported: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("mine")
    (tmp_path / "here").mkdir()
    done = eoctl(*AUDIT, *(each.format(crash) for each in arguments))
    assert done.status == status, done.errors
    assert reported in done.errors
    assert "Traceback" not in done.errors
    assert done.stdout == b""  # before anything was read
    assert (tmp_path / "mine.html").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["here", "mine.html"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(8))
def test_random_damage(killed: Path, pages: Callable[..., tuple[bytes, bytes]], seed: int) -> None:
    rng = random.Random(seed)
    logs = sorted(each for each in killed.rglob("*.log") if each.stat().st_size)
    for log in rng.sample(logs, 6):
        data = bytearray(log.read_bytes())
        end = rng.choice([61, len(data)])
        data[rng.randrange(min(end, len(data)))] ^= 1 << rng.randrange(8)
        log.write_bytes(data[: rng.choice([len(data), len(data) - 7])])
    ours, theirs = pages(killed)
    assert ours == theirs
