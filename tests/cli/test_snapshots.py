"""What a person sees: each command on terminals of 80, 120 and 200 columns, and in a pipe.

`EOCTL_SNAPSHOTS=write EOCTL_TESTS=all pytest tests/cli/test_snapshots.py` writes the files anew; look
at what has changed with git diff. `eoctl bench` is not among them: it measures.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.broker import copy_log_dir
from tests.terminal import Shown, on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.running import Outcome

DIRECTORY = Path(__file__).parent / "snapshots"
HELP_PAGES = Path(__file__).parents[2] / "eoctl/help/pages"
IS_WRITING = os.environ.get("EOCTL_SNAPSHOTS") == "write"
WIDTHS = (80, 120, 200)
LOG = "00000000000000000000.log"
NOW = ("--now", "2026-11-21T03:00:00Z")
# Columns whose files are as large in every directory: a path is in none of them.
SIZED = "offset,timestamp_ms,key,value"
# Name -> call; the log dir `kafka` is a copy of that of a broker that was stopped cleanly, `crashed`
# of one that was killed, `damaged` has one bit in plain-1 that is wrong, and `broker-N` are copies
# from three brokers. What has a `-` and a number is not to be read for its ids: they are masked.
CALLS = {
    "adopt": "adopt crashed --to made",
    "adopt-damaged": "adopt damaged --to made",
    "check": "check kafka",
    "check-crashed": "check crashed",
    "check-damaged": "check damaged",
    "check-predict": "check crashed --predict",
    "consume": "consume kafka/txn-0 --max-messages 5 --print-offset --print-key",
    "consume-damaged": "consume damaged/plain-1 --from 87 --print-offset --skip-corrupt -f %o",
    "copy": "copy kafka/plain-0 kafka/plain-1 --single-copy",
    "copy-damaged": "copy damaged/plain-1 kafka/plain-0 --single-copy",
    "describe": "describe kafka",
    "describe-damaged": "describe damaged",
    "describe-damaged-partition": "describe damaged/plain-1",
    "describe-partition": "describe kafka/txn-0",
    "diff": "diff kafka crashed",
    "diff-damaged": "diff kafka damaged",
    "dump-segment-damaged": f"dump-segment damaged/plain-1/{LOG}",
    "dump-segment-index": "dump-segment kafka/compacted-0/00000000000000000000.index",
    "dump-segment-log": f"dump-segment kafka/rolled-0/{LOG}",
    "dump-segment-properties": "dump-segment kafka/meta.properties kafka/txn-0/partition.metadata",
    "dump-segment-snapshot": "dump-segment kafka/txn-0/00000000000000000329.snapshot",
    "duplicates": "duplicates kafka",
    "duplicates-damaged": "duplicates damaged",
    "export": f"export kafka --to made --columns {SIZED}",
    "export-damaged": f"export damaged --to made --columns {SIZED}",
    "groups-describe": "groups describe kafka",
    "groups-export": "groups export kafka",
    "groups-import": "groups import kafka --from offsets.csv",
    "groups-list": "groups list kafka",
    "groups-list-damaged": "groups list damaged",
    "init": "init made --topic orders:2",
    "journal-list-empty": "journal list kafka",
    "lease-pid-list": "lease-pid list kafka",
    "locate": "locate kafka/txn-0 --offset 150",
    "locate-damaged": "locate damaged/plain-1 --offset 90",
    "loss": "loss kafka",
    "loss-damaged": "loss damaged",
    "metadata": "metadata kafka",
    "metadata-durability": "metadata kafka --durability",
    "metadata-history": "metadata crashed --history",
    "produce": "produce kafka/plain-0 lines.txt --single-copy",
    "producers": "producers kafka",
    "producers-damaged": "producers damaged",
    "rebuild": "rebuild crashed/txn-0",
    "rebuild-damaged": "rebuild damaged/plain-1",
    "reclaim": "reclaim kafka --class A,F --need 1M",
    "reclaim-damaged": "reclaim damaged --class A,B,C,D,E",
    "recover-state": "recover-state kafka/txn-0",
    "recover-state-damaged": "recover-state damaged/plain-1 --from-scratch",
    "repair": "repair kafka",
    "repair-damaged": "repair damaged",
    "repair-salvage": "repair damaged/plain-1 --strategy salvage --single-copy",
    "replicas-compare": "replicas compare broker-1/div-0 broker-2/div-0 broker-3/div-0",
    "replicas-rejoin": "replicas rejoin broker-1/div-0 --leader broker-2/div-0",
    "report-damaged": "report damaged --to made",
    "serve": "serve kafka --for-seconds 0 --verify",
    "serve-damaged": "serve damaged --for-seconds 0 --verify",
    "sim-init": "sim init made",
    "sim-scripts": "sim scripts",
    "sim-table": "sim table",
    "spark-audit": "spark-audit kafka --engine local",
    "spark-audit-damaged": "spark-audit damaged --engine local",
    "start-order": "start-order broker-1 broker-2 broker-3",
    "trim": "trim kafka/rolled-0 --to-offset 35",
    "trim-damaged": "trim damaged/plain-1 --to-offset 100",
    "truncate": "truncate kafka/txn-0 --to-offset 311 --single-copy",
    "truncate-damaged": "truncate damaged/plain-1 --to-offset 50 --single-copy",
    "txn-abort": "txn abort crashed --all-overdue --now 2026-11-22T03:00:00Z --single-copy",
    "txn-commit": "txn commit kafka --transactional-id open-1 --producer-id 40 --producer-epoch 0",
    "txn-complete": "txn complete crashed --now 2026-11-22T03:00:00Z --single-copy",
    "txn-describe": "txn describe crashed --producer-id 40",
    "txn-hanging": "txn hanging crashed --now 2026-11-22T03:00:00Z",
    "txn-list": "txn list crashed",
    "txn-list-damaged": "txn list damaged",
    "txn-run": "txn run kafka/plain-0 --to kafka/plain-1 --exec cat --transactional-id up --group up",
    "txn-stats": "txn stats crashed",
    "txn-stats-damaged": "txn stats damaged",
    "txn-torn": "txn torn crashed",
    "txn-torn-damaged": "txn torn damaged",
}
# On terminals with Unicode and without it: they are no rows, and programs are given none.
PICTURES = {
    "describe-picture": "describe damaged/plain-1 damaged/rolled-0 --picture",
    "txn-list-picture": "txn list crashed --all --picture",
}
LOCALES = {"80": "C.UTF-8", "ascii": "C"}
COLOURED = ("describe", "txn-hanging")
CHANGES = ("apply", "journal-list", "journal-show", "undo")
# What is new in each run is in their rows: ids of ours, a port, a digest of what was written.
# Lines with commands and paths, there to be pasted, and the text of Kafka's tools and records.
UNBROKEN = (
    "eoctl",
    "kcat",
    "kafka-",
    "verified: ends",
    "/",
    "baseOffset",
    "|",
    "server.properties",
)
NOT_DIGESTED = ("copy", "copy-damaged", "init", "produce", "serve", "serve-damaged", "txn-run")
_MASKS = (
    (re.compile(r"\d{8}T\d{6}\.\d{3}Z-([a-z-]+)-[0-9a-f]{4}"), r"PLAN-ID-\1"),
    (re.compile(r"(applied at:? +)\S+"), r"\1TIME"),
    (re.compile(r"[\d.]+ \wiB are free(, [\d.]+ \wiB afterwards)?"), "FREE"),
    (re.compile(r"\.from-[0-9a-f]{16}"), ".from-SESSION"),
    (re.compile(r"(producer id:? +)[6-9]\d{15}"), r"\1OURS"),
    (re.compile(r"producer [6-9]\d{15}"), "producer OURS"),
    (re.compile(r"127\.0\.0\.1:\d{5}\b(?!.*CONTROLLER)"), "127.0.0.1:PORT"),
)


@pytest.fixture(scope="module")
def place(golden: Callable[[str], Path]) -> Iterator[Path]:
    """Where the calls are made; they only read, but for the directory `made`.

    Its path is as long in every run: the columns of tables depend on it.
    """
    root = Path(tempfile.mkdtemp(prefix="eoctl-snapshots-", dir="/tmp"))
    copy_log_dir(golden("kafka-4.3.1") / "clean", root / "kafka")
    copy_log_dir(golden("kafka-4.3.1") / "crash", root / "crashed")
    damaged = copy_log_dir(golden("kafka-4.3.1") / "clean", root / "damaged")
    log = damaged / "plain-1" / LOG
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    three = golden("kafka-4.3.1-three-brokers")
    for each in sorted(three.rglob("broker-*")):
        shutil.copytree(each, root / each.name, dirs_exist_ok=True)
    (root / "lines.txt").write_text("one\ntwo\n")
    (root / "offsets.csv").write_text("plain-group,plain,1,150\n")
    yield root
    shutil.rmtree(root)


def masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return re.sub(r"/tmp/eoctl-snapshots-\w{8}/", "", text)


def held_against(name: str, call: str, text: str) -> None:
    """The snapshot says the same."""
    path = DIRECTORY / f"{name}.txt"
    reported = f"$ eoctl {call}\n{text}"
    if IS_WRITING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(reported)
    assert reported == path.read_text(), f"see the head of {Path(__file__).name}"


def arguments_of(call: str) -> list[str]:
    """The words of a call, with a clock if the command has one."""
    words = shlex.split(call)
    pages = [HELP_PAGES / f"eoctl.{'.'.join(words[:count])}.txt" for count in (2, 1)]
    page = next(each for each in pages if each.is_file())
    has_clock = "--now" in page.read_text() and words[0] != "spark-audit" and "--now" not in words
    return [*words, "-q", *(NOW if has_clock else ())]


def remove(made: Path) -> None:
    if made.is_file():
        made.unlink()
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.share(7)
@pytest.mark.parametrize("name", CALLS)
def test_answers_and_tables(
    name: str, place: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On three terminals; what a pipe is given on stderr, and digests of its stdout."""
    call, words = CALLS[name], arguments_of(CALLS[name])
    parts: dict[str, str] = {}
    for width in WIDTHS:
        shown = on_terminal(*words, cwd=place, width=width)
        remove(place / "made")
        found = masked(shown.text)
        if found not in parts.values():
            parts[f"{width} columns, status {shown.status}"] = found
        tables = [each for each in shown.lines if not any(word in each for word in UNBROKEN)]
        if not name.startswith(("consume", "dump-segment")):  # records are as long as they are
            assert all(len(each) <= width for each in tables), width
        assert shown.status != 2, shown.text
    monkeypatch.chdir(place)
    digests = []
    for form in ("text", "jsonl"):
        piped = eoctl(*words, "-o", form)
        remove(place / "made")
        if form == "text":
            parts[f"a pipe, status {piped.status}: stderr"] = masked(piped.errors)
        data = masked(piped.stdout.decode(errors="backslashreplace")).encode()
        digest = "" if name in NOT_DIGESTED else f", SHA-256 {sha256(data).hexdigest()[:16]}"
        digests.append(f"{form}: {len(data.splitlines())} lines{digest}\n")
    parts["a pipe: stdout"] = "".join(digests)
    reported = "".join(f"== {head}\n{text}" for head, text in parts.items())
    held_against(name, call, reported)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("kind", LOCALES)
def test_pictures(name: str, kind: str, place: Path) -> None:
    call = PICTURES[name]
    environment = {"LC_ALL": LOCALES[kind]}
    shown = on_terminal(*arguments_of(call), cwd=place, environment=environment, streams=["stdout"])
    held_against(f"{name}-{kind}", call, ended(shown, shown.text))
    assert all(len(line) <= 80 for line in shown.lines)
    assert kind != "ascii" or shown.raw.isascii()


def ended(shown: Shown, text: str) -> str:
    return f"{masked(text)}[{shown.status}]\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COLOURED)
def test_in_colours(name: str, place: Path) -> None:
    r"""Escapes as \e; without them it is the same."""
    call = CALLS[name]
    shown = on_terminal(*arguments_of(call), cwd=place)
    assert "\x1b" in shown.raw
    held_against(f"{name}-colours", call, ended(shown, shown.raw.replace("\x1b", "\\e")))
    plain = on_terminal(*arguments_of(call), cwd=place, environment={"NO_COLOR": "1"})
    assert plain.raw == plain.text == shown.text


def test_a_change_and_its_way_back(
    golden: Callable[[str], Path],
    tmp_path: Path,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """apply, journal and undo, one after the other."""
    copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    monkeypatch.chdir(tmp_path)
    planned = eoctl(
        *("truncate", "kafka/txn-0", "--to-offset", "311", "--single-copy", *NOW),
        *("--save-plan", "plan.json"),
    )
    assert planned.status == 0, planned.errors
    for name, call in (
        ("apply", "apply plan.json"),
        ("journal-list", "journal list kafka --columns plan_id,status,command,steps"),
        ("journal-show", "journal show kafka"),
        ("undo", "undo kafka.eoctl/*"),
    ):
        (journal,) = (tmp_path / "kafka.eoctl").glob("*") if name != "apply" else [Path()]
        words = [str(journal) if "*" in each else each for each in shlex.split(call)]
        shown = on_terminal(*words, cwd=tmp_path)
        held_against(name, call, ended(shown, shown.text.replace(f"{tmp_path}/", "")))


def test_each_snapshot_is_used() -> None:
    used = {*CALLS, *CHANGES, *(f"{name}-colours" for name in COLOURED)}
    used |= {f"{name}-{kind}" for name in PICTURES for kind in LOCALES}
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == used
