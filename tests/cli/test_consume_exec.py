"""`eoctl consume --exec`: what the program is given, and what a kill at any moment does."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.audit_logs import Batch
from tests.cli.test_consume_follow import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

ROOT = Path(__file__).parents[2]
EOCTL = [sys.executable, "-m", "eoctl"]
MODES = ("before", "after", "atomic")

# Notes each record in a file at once, and keeps the offsets as its state.
KEEPER = """
import json, os, sys, time
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
slow_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0
for line in sys.stdin.buffer:
    if not line.endswith(b"\\n"):
        break
    fields = json.loads(line)
    kind = fields.get("kind")
    if kind == "start":
        state = fields["state"] or []
        os.write(notes, b"start %d\\n" % os.getpid())
    elif kind == "commit":
        answer = {"next_offset": fields["next_offset"], "state": state}
        try:
            os.write(1, json.dumps(answer).encode() + b"\\n")
        except BrokenPipeError:
            break
    else:
        state.append(fields["offset"])
        os.write(notes, b"%d\\n" % fields["offset"])
        time.sleep(slow_s)
"""


class Keeper:
    """The program above, its notes, and the checkpoint beside them."""

    def __init__(self, directory: Path, slow_s: float = 0) -> None:
        self.script, self.notes = directory / "keeper.py", directory / "notes"
        self.checkpoint = directory / "checkpoint"
        self.script.write_text(KEEPER)
        self.command = f"{sys.executable} {self.script} {self.notes} {slow_s}"

    @property
    def options(self) -> tuple[str, ...]:
        return "--exec", self.command, "--checkpoint", str(self.checkpoint)

    def offsets(self) -> list[int]:
        """What it was given, in all runs."""
        lines = self.notes.read_text().split("\n") if self.notes.exists() else []
        return [int(line) for line in lines if line.isdecimal()]

    def pid(self) -> int:
        lines = [line for line in self.notes.read_text().split("\n") if line.startswith("start ")]
        return int(lines[-1].split()[1])

    def wait_for(self, count: int, running: subprocess.Popen[bytes]) -> None:
        """Wait until it was given so many records, in all runs, or the consumer has ended."""
        wait_for(lambda: len(self.offsets()) >= count or running.poll() is not None)

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.checkpoint.read_text())
        return found


def program(directory: Path, code: str) -> str:
    script = directory / "program.py"
    script.write_text("import json, sys\n" + code)
    return f"{sys.executable} {script}"


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


def offsets_in(eoctl: Eoctl, partition: Path, *options: object) -> list[int]:
    outcome = eoctl("consume", partition, "--output", "jsonl", *options)
    return [json.loads(line)["offset"] for line in outcome.text.split("\n")[:-1]]


# --- the protocol ---------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_each_record_once(
    mode: str, isolation: str, eoctl: Eoctl, clean: Path, tmp_path: Path
) -> None:
    keeper = Keeper(tmp_path)
    call = ("consume", clean / "txn-0", "--isolation", isolation, *keeper.options)
    expected = offsets_in(eoctl, clean / "txn-0", "--isolation", isolation)
    end = 311 if isolation == "read_committed" else 329
    for _ in range(2):  # the second time there is nothing left
        outcome = eoctl(*call, "--commit", mode, "--batch-messages", 7, "--output", "jsonl")
        assert outcome.status == 0, outcome.errors
        assert keeper.offsets() == expected
        saved = keeper.saved()
        assert saved["next_offset"] == end
        assert saved["state"] == (expected if mode == "atomic" else None)
    row = json.loads(outcome.text)
    assert (row["records"], row["hand_overs"], row["next_offset"]) == (0, 0, end)
    assert f"going on at offset {end}" in outcome.errors
    assert (saved["topic"], saved["partition"], saved["commit"]) == ("txn", 0, mode)
    assert len(saved["topic_id"]) == 22


def test_what_the_program_is_given(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    keep = tmp_path / "lines"
    command = program(
        tmp_path,
        f"out = open({str(keep)!r}, 'w')\n"
        "for line in sys.stdin:\n"
        "    out.write(line)\n"
        "    if '\"kind\":\"commit\"' in line: print(line, end='', flush=True)\n",
    )
    options = ("--from", 5, "--max-messages", 5, "--bytes", "base64")
    outcome = eoctl(
        "consume", clean / "plain-0", *options, "--exec", command, "--checkpoint",
        tmp_path / "c", "--batch-messages", 3,
    )  # fmt: skip
    assert outcome.status == 0, outcome.errors
    start, *lines = keep.read_text().split("\n")[:-1]
    assert json.loads(start) == {
        "kind": "start", "topic": "plain", "partition": 0, "next_offset": 5, "commit": "after",
        "state": None,
    }  # fmt: skip
    records = eoctl("consume", clean / "plain-0", *options, "--output", "jsonl").text.split("\n")
    assert lines == [
        *records[:3], '{"kind":"commit","next_offset":8,"records":3}',
        *records[3:5], '{"kind":"commit","next_offset":10,"records":2}',
    ]  # fmt: skip
    assert outcome.text.split("\n")[1].split("\t")[:7] == ["plain", "0", "5", "2", "5", "9", "10"]


def test_large_hand_overs_and_states(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    """Neither side waits for the other, also when more is said than pipes hold."""
    command = program(
        tmp_path,
        "seen = 0\n"
        "for line in sys.stdin:\n"
        "    seen += len(line)\n"
        "    fields = json.loads(line)\n"
        "    if fields.get('kind') == 'commit':\n"
        "        answer = {'next_offset': fields['next_offset'], 'state': 'x' * 3_000_000}\n"
        "        print(json.dumps(answer), flush=True)\n",
    )
    outcome = eoctl(
        "consume", clean / "rolled-0", "--exec", command, "--checkpoint", tmp_path / "c",
        "--commit", "atomic", "--batch-messages", 1000,
    )  # fmt: skip
    assert outcome.status == 0, outcome.errors
    assert len(json.loads((tmp_path / "c").read_text())["state"]) == 3_000_000


LATE = """
for line in sys.stdin:
    if '"commit",' in line:
        sys.stdout.write(line[:-2] + ',"state":1}' + chr(10))
        sys.stdout.flush()
        sys.exit(7)
"""
FAULTS = {
    "ends at once": ("sys.exit(3)", "ended with exit status 3 before it answered"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "was killed by signal 9"),
    "no json": (
        "for line in sys.stdin:\n if 'commit\",' in line: print('ok', flush=True)",
        "answered 'ok'",
    ),
    "talks": ("for line in sys.stdin: print(' ', flush=True)", "(answered|said) ' "),
    "wrong offset": (
        "for line in sys.stdin: print('{\"next_offset\":1}', flush=True)",
        '(answered|said) \'{"next_offset":1}',
    ),
    "no state": (
        "for line in sys.stdin:\n if 'commit\",' in line: print(line, end='', flush=True)",
        "its answer has no state",
    ),
    "late": (LATE, "ended with exit status 7"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_programs_that_fail(fault: str, eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    code, words = FAULTS[fault]
    call = (
        "consume", clean / "idem-none-0", "--exec", program(tmp_path, code),
        "--checkpoint", tmp_path / "c", "--batch-messages", 5, "--commit", "atomic",
    )  # fmt: skip
    outcome = eoctl(*call)
    assert outcome.status == 3
    assert re.search(words, outcome.errors)
    saved = json.loads((tmp_path / "c").read_text())
    expected = 5 if fault == "late" else 0
    assert saved["next_offset"] == expected
    assert f"says next offset {expected}" in outcome.errors
    again = "offsets 5 to 9" if fault == "late" else "offsets 0 to 4"
    assert f"(it had been given {again}; they will be given again)" in outcome.errors


def test_a_failure_before(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    outcome = eoctl(
        "consume", clean / "idem-none-0", "--exec", program(tmp_path, "sys.exit(3)"),
        "--checkpoint", tmp_path / "c", "--batch-messages", 5, "--commit", "before",
    )  # fmt: skip
    assert outcome.status == 3
    assert "offsets 0 to 4; they will not be given again)" in outcome.errors
    assert json.loads((tmp_path / "c").read_text())["next_offset"] == 5


def test_a_last_word(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    """A program that fails, or talks, after all was handed over."""
    echo = "for line in sys.stdin:\n if 'commit\",' in line: print(line, end='', flush=True)\n"
    for code, words in (
        ("sys.exit(9)", "exit status 9 after all"),
        ("print(1)", "nobody requested"),
    ):
        outcome = eoctl(
            "consume", clean / "idem-none-0", "--exec", program(tmp_path, echo + code),
            "--checkpoint", tmp_path / "c",
        )  # fmt: skip
        assert outcome.status == 3
        assert words in outcome.errors
        assert json.loads((tmp_path / "c").read_text())["next_offset"] == 150


def test_a_silent_program_is_waited_for(
    eoctl: Eoctl, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gave a program that does not know the answers sees more than a command that hangs."""
    monkeypatch.setattr("eoctl.clients.user_programs.program.SILENCE_S", 0.01)
    echo = (
        "import time\n"
        "for line in sys.stdin:\n"
        " time.sleep(0.2 if 'commit\",' in line else 0)\n"
        " if 'commit\",' in line: print(line, end='', flush=True)\n"
    )
    outcome = eoctl(
        "consume", clean / "idem-none-0", "--exec", program(tmp_path, echo),
        "--checkpoint", tmp_path / "c", "--batch-messages", 100,
    )  # fmt: skip
    assert outcome.status == 0, outcome.errors
    assert outcome.errors.count("has not answered for 0.01 s; it is waited for") == 1


def test_a_program_that_is_not_there_leaves_no_checkpoint(
    eoctl: Eoctl, clean: Path, tmp_path: Path
) -> None:
    """Which would hold the next try to the same options."""
    call = ("consume", clean / "idem-none-0", "--checkpoint", tmp_path / "c")
    assert eoctl(*call, "--exec", "no-such-program").status == 3
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--exec", "true"), 2, "--exec needs one place"),
        (("--checkpoint", "c"), 2, "go with --exec"),
        (("--commit", "after"), 2, "go with --exec"),
        (("--exec", "no-such-program", "--checkpoint", "c"), 3, "No such file"),
        (("--exec", "'", "--checkpoint", "c"), 2, "No closing quotation"),
        (("--exec", " ", "--checkpoint", "c"), 2, "no program is named"),
        (("--exec", "true", "--checkpoint", "no/c"), 3, "No such file"),
        (("--exec", "true", "--checkpoint", "."), 4, "no regular file"),
    ],
)
def test_wrong_calls(
    arguments: tuple[str, ...], status: int, words: str, eoctl: Eoctl, clean: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    outcome = eoctl("consume", clean / "txn-0", *arguments)
    assert outcome.status == status
    assert words in outcome.errors


# --- the checkpoint -------------------------------------------------------------------------------


def test_checkpoints_of_others_are_refused(eoctl: Eoctl, kafka: Path, tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    assert eoctl("consume", kafka / "txn-0", *keeper.options).status == 0
    before = keeper.checkpoint.read_bytes()
    for arguments, words in (
        ((kafka / "txn-1",), "its partition is 0, not 1"),
        ((kafka / "idem-none-0",), "its topic is txn, not idem-none"),
        ((kafka / "txn-0", "--isolation", "read_committed"), "its isolation is"),
        ((kafka / "txn-0", "--commit", "atomic"), "its commit is after, not atomic"),
    ):
        outcome = eoctl("consume", *arguments, *keeper.options)
        assert (outcome.status, outcome.stdout) == (4, b"")
        assert words in outcome.errors
    metadata = kafka / "txn-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert "its topic id is" in eoctl("consume", kafka / "txn-0", *keeper.options).errors
    metadata.unlink()  # not known any more: nothing says that it is another topic
    assert eoctl("consume", kafka / "txn-0", *keeper.options).status == 0
    fields = {**json.loads(before), "next_offset": 330}
    for content, words in (
        (json.dumps(fields), "its next offset is 330, and the log holds 0 to 328"),
        (json.dumps({**fields, "next_offset": "1"}), "is no offset"),
        (json.dumps({**fields, "version": 2}), "another version"),
        ("[1]", "no checkpoint of eoctl consume"),
        ("{", "no checkpoint of eoctl consume"),
    ):
        keeper.checkpoint.write_text(content)
        outcome = eoctl("consume", kafka / "txn-0", *keeper.options)
        assert outcome.status == 4
        assert words in outcome.errors
        assert keeper.checkpoint.read_text() == content


def test_a_checkpoint_among_a_brokers_files_is_refused(
    eoctl: Eoctl, kafka: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone-0"
    (kafka / "txn-0").rename(alone)
    for place in (kafka / "c", kafka / "txn-1" / "c", alone / "c"):
        outcome = eoctl("consume", alone, "--exec", "cat", "--checkpoint", place)
        assert outcome.status == 4
        assert "only a broker's files belong" in outcome.errors
        assert not place.exists()


def test_records_that_are_gone_are_not_passed_over(
    eoctl: Eoctl, kafka: Path, tmp_path: Path
) -> None:
    keeper = Keeper(tmp_path)
    call = ("consume", kafka / "txn-0", *keeper.options)
    assert eoctl(*call, "--max-messages", 10).status == 0
    (kafka / "log-start-offset-checkpoint").write_text("0\n1\ntxn 0 120\n")
    outcome = eoctl(*call)
    assert outcome.status == 4
    assert "the log holds 120 to 328" in outcome.errors


def test_one_consumer_at_a_time(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, slow_s=0.02)
    call = ["consume", str(clean / "txn-0"), *keeper.options]
    with subprocess.Popen([*EOCTL, *call], cwd=ROOT, stderr=subprocess.PIPE) as first:
        wait_for(lambda: bool(keeper.offsets()))
        second = eoctl(*call)
        assert second.status == 4
        assert "another consumer is using it" in second.errors
        first.kill()
    replaced = json.loads(keeper.checkpoint.read_text())
    assert replaced["next_offset"] == 0


def test_modes_of_the_checkpoint(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    """A new one as the umask says, later ones as the one before."""
    keeper = Keeper(tmp_path)
    before = os.umask(0o027)
    try:
        call = ("consume", clean / "txn-0", *keeper.options, "--max-messages", 3)
        assert eoctl(*call).status == 0
        assert keeper.checkpoint.stat().st_mode & 0o777 == 0o640
        keeper.checkpoint.chmod(0o600)
        assert eoctl(*call).status == 0
        assert keeper.checkpoint.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert not list(tmp_path.glob("*.eoctl-tmp"))


# --- kills ----------------------------------------------------------------------------------------

KILLS = 8
HAND_OVER = 6


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_kills_at_random_moments(mode: str, eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    """Of the consumer, with or without its program: a crash of the one, or of the machine."""
    draw = random.Random(f"{os.environ['EOCTL_SEED']} {mode}")
    keeper = Keeper(tmp_path, slow_s=0.001)
    partition = clean / "many-producers-0"
    expected = offsets_in(eoctl, partition)
    call = [*EOCTL, "consume", str(partition), *keeper.options, "--commit", mode]
    call += ["--batch-messages", str(HAND_OVER)]
    kills = 0
    while kills < KILLS:
        wanted = len(keeper.offsets()) + draw.randint(1, max(2, len(expected) // KILLS))
        with subprocess.Popen(call, cwd=ROOT, stderr=subprocess.DEVNULL) as running:
            keeper.wait_for(wanted, running)
            time.sleep(draw.uniform(0, 0.01))
            if running.poll() is not None:
                break
            running.kill()
            pid = keeper.pid()
            if draw.random() < 0.5:
                with suppress(ProcessLookupError):  # its stdin has ended, and it may be through
                    os.kill(pid, signal.SIGKILL)
            kills += 1
        wait_for(lambda: not is_running(keeper.pid()))
    assert subprocess.run(call, cwd=ROOT, check=False).returncode == 0
    found = keeper.offsets()
    lost = sorted(set(expected) - set(found))
    repeated = len(found) - len(set(found))
    print(f"{mode}: {kills} kills, {len(lost)} lost, {repeated} repeated")
    assert set(found) <= set(expected)
    if mode == "before":
        assert repeated == 0
        assert len(lost) <= kills * HAND_OVER
    else:
        assert lost == []
        assert repeated <= kills * HAND_OVER
    if mode == "atomic":
        assert keeper.saved()["state"] == expected


@pytest.mark.share(1)
@pytest.mark.parametrize("mode", MODES)
def test_a_kill_in_the_middle(mode: str, eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    """Of both, in the third hand-over: what it costs is what the mode says."""
    keeper = Keeper(tmp_path)
    begun = 2 * HAND_OVER + 3
    keeper.script.write_text(
        KEEPER.replace("time.sleep(slow_s)", f"time.sleep(120 if len(state) == {begun} else 0)")
    )
    expected = offsets_in(eoctl, clean / "many-producers-0")
    call = [*EOCTL, "consume", str(clean / "many-producers-0"), *keeper.options, "--commit", mode]
    call += ["--batch-messages", str(HAND_OVER)]
    with subprocess.Popen(call, cwd=ROOT, stderr=subprocess.DEVNULL) as running:
        keeper.wait_for(begun, running)
        running.kill()
        os.kill(keeper.pid(), signal.SIGKILL)
    given = keeper.offsets()
    done, handed = expected[: 2 * HAND_OVER], 3 * HAND_OVER
    assert given == expected[:begun]
    saved = keeper.saved()
    assert saved["next_offset"] == (expected[handed] if mode == "before" else done[-1] + 1)
    assert saved["state"] == (done if mode == "atomic" else None)
    keeper.script.write_text(KEEPER)
    assert subprocess.run(call, cwd=ROOT, check=False, stderr=subprocess.DEVNULL).returncode == 0
    again = expected[handed:] if mode == "before" else expected[len(done) :]
    assert keeper.offsets() == given + again
    assert keeper.saved()["state"] == (expected if mode == "atomic" else None)


def test_interrupted(clean: Path, tmp_path: Path) -> None:
    """Ctrl-C ends it in order; the position is where the program was."""
    keeper = Keeper(tmp_path, slow_s=0.05)
    call = [*EOCTL, "consume", str(clean / "txn-0"), *keeper.options, "--batch-messages", "5"]
    with subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE) as running:
        wait_for(lambda: len(keeper.offsets()) > 12)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=90)
    assert running.returncode == 130
    saved = keeper.saved()["next_offset"]
    assert saved >= 10
    assert f"interrupted: {keeper.checkpoint} says next offset {saved}" in errors.decode()
    assert not is_running(keeper.pid())


@pytest.mark.exhaustive
def test_followed_by_a_program(tmp_path: Path) -> None:
    """What is there is handed over at once, and the position passes what is hidden, too."""
    log = Log(tmp_path / "logs" / "grown-0")
    (tmp_path / "work").mkdir()
    keeper = Keeper(tmp_path / "work")
    call = [*EOCTL, "consume", str(log.directory), "--follow", "--isolation", "read_committed"]
    call += [*keeper.options, "--commit", "atomic"]
    log.append(Batch(count=3))
    for place in range(2):
        offset = log.next_offset
        with subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE) as running:
            wait_for(keeper.checkpoint.exists)
            log.append(Batch(pid=2, kind="txn", count=2), Batch())
            time.sleep(0.3)
            assert offset not in keeper.offsets()
            log.append(Batch(pid=2, kind="commit" if place else "abort"))
            end = log.next_offset
            wait_for(lambda end=end: keeper.saved()["next_offset"] == end)
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=90)
        assert running.returncode == 130
    expected = [0, 1, 2, 5, 7, 8, 9]
    assert keeper.offsets() == keeper.saved()["state"] == expected


# --- the man page ---------------------------------------------------------------------------------


def test_example_of_the_man_page(
    eoctl: Eoctl, kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "man" / "eoctl-consume.1").read_text().replace("\\e\n    ", "")
    match = re.search(
        r"^\$ cat count.py\n(.*?)^\$ eoctl (.*?)\n(\{.*?)^\$ cat count.json\n(.*?)^\.Ed",
        page, re.DOTALL | re.MULTILINE,
    )  # fmt: skip
    assert match is not None
    script, command, shown, saved = match.groups()
    monkeypatch.chdir(tmp_path)
    Path("count.py").write_text(script)
    words = command.replace("/var/lib/kafka", str(kafka))
    parts = re.findall(r"'[^']*'|\S+", words)
    outcome = eoctl(*(each.strip("'").replace("python3", sys.executable) for each in parts))
    assert outcome.status == 0, outcome.errors
    expected = json.loads(re.sub(r"\n ?", "", shown))
    assert json.loads(outcome.text) == {**expected, "checkpoint": str(tmp_path / "count.json")}
    found = json.loads(Path("count.json").read_text())
    assert {**found, "topic_id": "..."} == json.loads(re.sub(r"\n ?", "", saved))
