"""What a person sees: each command on a terminal of 80 columns, some on wider ones.

`EOCTL_SNAPSHOTS=write pytest tests/cli/test_snapshots.py` writes the files anew; look at what has
changed with git diff.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from tests.kafka.broker import copy_log_dir
from tests.terminal import Shown, on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

DIRECTORY = Path(__file__).parent / "snapshots"
IS_WRITING = os.environ.get("EOCTL_SNAPSHOTS") == "write"
LOG = "00000000000000000000.log"
NOW = ("--now", "2026-11-21T03:00:00Z")
# Name -> call; the log dir `kafka` is a copy of that of a broker that was stopped cleanly, `crashed`
# of one that was killed, and `broker-N` are copies from three brokers.
READERS = {
    "dump-segment-log": f"dump-segment kafka/rolled-0/{LOG}",
    "dump-segment-index": "dump-segment kafka/compacted-0/00000000000000000000.index",
    "dump-segment-snapshot": "dump-segment kafka/txn-0/00000000000000000329.snapshot",
    "dump-segment-properties": "dump-segment kafka/meta.properties kafka/txn-0/partition.metadata",
    "describe": "describe kafka",
    "describe-partition": "describe kafka/txn-0",
    "check": "check crashed",
    "rebuild": "rebuild crashed/txn-0",
    "recover-state": "recover-state kafka/txn-0",
    "locate": "locate kafka/txn-0 --offset 150",
    "consume": "consume kafka/txn-0 --max-messages 5 --print-offset --print-key",
    "produce": "produce kafka/plain-0 lines.txt --single-copy",
    "copy": "copy kafka/plain-0 kafka/plain-1 --single-copy",
    "repair": "repair damaged/plain-1 --strategy salvage --single-copy",
    "truncate": "truncate kafka/txn-0 --to-offset 311 --single-copy",
    "txn-list": "txn list crashed",
    "txn-describe": "txn describe crashed --producer-id 40",
    "txn-hanging": "txn hanging crashed --now 2026-11-22T03:00:00Z",
    "txn-torn": "txn torn crashed",
    "txn-stats": "txn stats crashed",
    "replicas-compare": "replicas compare broker-1/div-0 broker-2/div-0 broker-3/div-0",
    "producers": "producers kafka",
    "duplicates": "duplicates kafka",
    "loss": "loss damaged",
    "lease-pid-list": "lease-pid list kafka",
    "spark-audit": "spark-audit kafka --engine local",
}
# On terminals with Unicode and without it: they are no rows, and programs are given none.
PICTURES = {
    "describe-picture": "describe damaged/plain-1 damaged/rolled-0 --picture",
    "txn-list-picture": "txn list crashed --all --picture",
}
LOCALES = {"80": "C.UTF-8", "ascii": "C"}
# Wider: those that have more to show.
WIDER = [(name, width) for name in ("describe", "duplicates", "txn-list") for width in (140, 200)]
# What is new in each run is in it: ids of ours.
NOT_DIGESTED = ("copy", "produce")
CLOCKLESS = ("dump-segment", "describe", "locate", "consume", "duplicates", "spark-audit", "loss")
_MASKS = (
    (re.compile(r"\d{8}T\d{6}\.\d{3}Z-([a-z-]+)-[0-9a-f]{4}"), r"PLAN-ID-\1"),
    (re.compile(r"(applied at:? +)\S+"), r"\1TIME"),
    (re.compile(r"\.from-[0-9a-f]{16}"), ".from-SESSION"),
    (re.compile(r"(producer id:? +)[6-9]\d{15}"), r"\1OURS"),
    (re.compile(r"producer [6-9]\d{15}"), "producer OURS"),
)


@pytest.fixture(scope="module")
def place(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the calls are made; they only read."""
    root = tmp_path_factory.mktemp("snapshots")
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
    return root


def held_against(name: str, call: str, shown: Shown, text: str) -> None:
    """The snapshot says the same."""
    path = DIRECTORY / f"{name}.txt"
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    text = re.sub(r"/\S+/snapshots\d+/", "", text)
    told = f"$ eoctl {call}\n{text}[{shown.status}]\n"
    if IS_WRITING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(told)
    assert told == path.read_text(), f"see the head of {Path(__file__).name}"


def arguments_of(call: str) -> list[str]:
    words = [*shlex.split(call), "-q"]
    return words if words[0] in CLOCKLESS or "--now" in words else [*words, *NOW]


@pytest.mark.share(9)
@pytest.mark.parametrize("name", READERS)
def test_in_80_columns(name: str, place: Path) -> None:
    call = READERS[name]
    shown = on_terminal(*arguments_of(call), cwd=place)
    held_against(f"{name}-80", call, shown, shown.text)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("kind", LOCALES)
def test_pictures(name: str, kind: str, place: Path) -> None:
    call = PICTURES[name]
    environment = {"LC_ALL": LOCALES[kind]}
    shown = on_terminal(*arguments_of(call), cwd=place, environment=environment, streams=["stdout"])
    held_against(f"{name}-{kind}", call, shown, shown.text)
    assert all(len(line) <= 80 for line in shown.lines)
    assert kind != "ascii" or shown.raw.isascii()


@pytest.mark.share(2)
@pytest.mark.parametrize(("name", "width"), WIDER)
def test_in_more_columns(name: str, width: int, place: Path) -> None:
    call = READERS[name]
    shown = on_terminal(*arguments_of(call), cwd=place, width=width)
    held_against(f"{name}-{width}", call, shown, shown.text)
    assert all(len(line) <= width for line in shown.lines if line.startswith(" "))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["describe", "txn-hanging"])
def test_in_colours(name: str, place: Path) -> None:
    r"""Escapes as \e; without them it is the same."""
    call = READERS[name]
    shown = on_terminal(*arguments_of(call), cwd=place)
    assert "\x1b" in shown.raw
    held_against(f"{name}-colours", call, shown, shown.raw.replace("\x1b", "\\e"))
    plain = on_terminal(*arguments_of(call), cwd=place, environment={"NO_COLOR": "1"})
    assert plain.raw == plain.text == shown.text


FORMATS = ((), ("-o", "jsonl"), ("-o", "msgpack"))  # the default is text
DIGESTS = DIRECTORY / "machine.json"


def test_what_programs_read_is_as_it_was(
    place: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes in a pipe, by their digests: those of text, of jsonl and of msgpack."""
    monkeypatch.chdir(place)
    found = {}
    for name, call in READERS.items():
        if name in NOT_DIGESTED:
            continue
        words = arguments_of(call)
        texts = [eoctl(*words, *more).stdout for more in FORMATS]
        rows = msgpack.Unpacker(io.BytesIO(texts.pop()))  # a text's length is in its bytes
        texts = [
            each.replace(str(place).encode(), b"") for each in (*texts, repr([*rows]).encode())
        ]
        found[name] = [sha256(each).hexdigest()[:16] for each in texts]
    if IS_WRITING:
        DIGESTS.write_text(f"{json.dumps(found, indent=1)}\n")
    assert found == json.loads(DIGESTS.read_text())


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
        held_against(f"{name}-80", call, shown, shown.text.replace(f"{tmp_path}/", ""))


def test_each_snapshot_is_used() -> None:
    used = {f"{name}-80" for name in (*READERS, "apply", "journal-list", "journal-show", "undo")}
    used |= {f"{name}-{width}" for name, width in WIDER} | {"describe-colours"}
    used |= {f"{name}-{kind}" for name in PICTURES for kind in LOCALES}
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == used | {"txn-hanging-colours"}
