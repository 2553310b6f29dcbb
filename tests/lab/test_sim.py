"""eoctl sim: a cluster is made, lives, and is judged."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab import simulation
from eoctl.lab.clients.producer import Producer
from storage.dirs.cluster_image import load_bootstrap_image
from storage.files.broker_lock import LockHeldError, take
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


FAULTS = "kill leader at 20%, kill any at 40%, start all at 70%"


@pytest.fixture
def simulate(eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    outcome = eoctl("sim", "init", "play", "--nodes", 3, "--min-insync-replicas", 2)
    assert outcome.status == 0, outcome.errors
    return tmp_path / "play"


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(each) for each in outcome.text.splitlines()]


def tree_of(path: Path) -> dict[str, str]:
    return {
        str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


def checked_after_another_run(eoctl: Run, simulate: Path) -> Outcome:
    """Behind a first one that was cut off: its logs can be read, and it goes on from them."""
    for node in simulate.glob("node-*"):
        assert eoctl("describe", node).status == 0
    again = eoctl("sim", "run", "play", "--records", 20)
    assert again.status == 0, again.errors
    assert "run 1 has not come to its end" in again.errors
    checked = eoctl("sim", "check", "play")
    assert checked.status == 0, checked.errors
    return checked


def test_what_is_acknowledged_is_there(eoctl: Run, simulate: Path) -> None:
    ran = eoctl("sim", "run", "play", "--records", 300, "--faults", FAULTS, "-o", "jsonl")
    assert ran.status == 0, ran.errors
    words = [each["words"] for each in rows(ran)]
    assert "kill broker 0" in words
    assert any("is elected leader" in each for each in words)
    checked = eoctl("sim", "check", "play", "-o", "jsonl")
    assert (checked.status, checked.text) == (0, "")
    assert "300 acknowledged records" in checked.errors
    history = (simulate / "history-1.jsonl").read_text().splitlines()
    assert json.loads(history[0])["settings"]["acks"] == -1
    assert sum('"op":"send"' in each and '"ok"' in each for each in history) == 300
    assert eoctl("check", *simulate.glob("node-*")).status == 0
    described = rows(eoctl("describe", simulate / "node-0" / "t-0", "-o", "jsonl"))
    assert described


@pytest.mark.parametrize(
    ("commit", "kind", "words"),
    [
        ("before", "never-handled", "lost for the consumer"),
        ("after", "handled-twice", "given to the consumer again"),
    ],
)
def test_what_a_consumer_makes_of_its_commits_is_told_and_is_no_finding(
    eoctl: Run, simulate: Path, commit: str, kind: str, words: str
) -> None:
    faults = "kill consumer at 40% handling, start consumer at 60%"
    ran = eoctl(
        "sim", "run", "play", "--records", 200, "--consumer-commit", commit, "--faults", faults,
        "-o", "jsonl",
    )  # fmt: skip
    assert ran.status == 0, ran.errors
    reported = [each["words"] for each in rows(ran)]
    assert "kill the consumer" in reported
    assert any("the consumer goes on at offset" in each for each in reported)
    checked = eoctl("sim", "check", "play", "-o", "jsonl")
    assert checked.status == 0, checked.errors
    assert "nothing is wrong" in checked.errors
    assert words in checked.errors
    found = rows(checked)
    assert {each["kind"] for each in found} == {kind}
    assert all("has handled" in " ".join(each["witness"]) for each in found)
    shown = eoctl("sim", "check", "play")
    assert f"{len(found)} {kind} ({words}" in shown.errors


def test_a_consumer_that_commits_nothing_cannot_be_killed(eoctl: Run, simulate: Path) -> None:
    outcome = eoctl("sim", "run", "play", "--faults", "kill consumer at 20%")
    assert outcome.status == 2
    assert "'kill consumer at 20%': there is no consumer that commits" in outcome.errors
    assert "--consumer-commit before" in outcome.errors
    assert not (simulate / "history-1.jsonl").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("acks", ["0", "all"])
def test_records_in_the_memory_of_a_killed_producer_are_counted(
    eoctl: Run, simulate: Path, acks: str
) -> None:
    """Given = acknowledged + failed + unknown + forgotten; with acks=0 nothing is acknowledged."""
    ran = eoctl(
        "sim", "run", "play", "--records", 100, "--acks", acks, "--linger-ms", 200,
        "--faults", "kill producer at 30%, start producer at 40%, kill producer at 70%",
    )  # fmt: skip
    assert ran.status == 0, ran.errors
    lines = list(map(json.loads, (simulate / "history-1.jsonl").read_text().splitlines()[1:]))
    sends = [each["type"] for each in lines if each["op"] == "send"]
    forgotten = 2 * sends.count("invoke") - len(sends)
    assert forgotten > 0
    assert f", {forgotten} in the memory of a killed producer (" in ran.errors
    values = [each["value"] for each in lines if each["op"] == "send"]
    assert sends.count("invoke") == len({*values}) == 100
    checked = eoctl("sim", "check", "play")
    assert checked.status == 0, checked.errors
    reported = f"{100 - forgotten} sent, never acknowledged" if acks == "0" else ""
    assert reported in ran.errors
    answered = f"{0 if acks == '0' else 100 - forgotten} acknowledged records"
    assert answered in checked.errors


def test_a_record_that_is_lost_with_acks_0_was_not_acknowledged(eoctl: Run, simulate: Path) -> None:
    ran = eoctl(
        "sim", "run", "play", "--records", 200, "--acks", "0",
        "--faults", "kill leader at 30%, power all at 60%, start all at 61%",
    )  # fmt: skip
    assert ran.status == 0, ran.errors
    checked = eoctl("sim", "check", "play")
    assert checked.status == 1
    assert "was sent with acks=0, and is in no replica" in checked.text + checked.errors
    assert " was acknowledged" not in checked.text + checked.errors


def test_what_the_client_has_dropped_is_told_by_name(eoctl: Run, simulate: Path) -> None:
    """Counted as failed alone it could have been the brokers'."""
    call = [
        "sim", "run", "play", "--records", 60, "--buffer-records", 5, "--drop-when-full",
        "--faults", "kill all at 10%",
    ]  # fmt: skip
    ran = eoctl(*call, "-o", "jsonl")
    assert ran.status == 0, ran.errors
    history = (simulate / "history-1.jsonl").read_text()
    count = history.count('"error":"BUFFER_FULL"')
    assert count
    (dropped,) = [each for each in rows(ran) if each["event"] == "dropped"]
    assert dropped["words"].startswith(f"dropped by the client: {count}, ")
    words = f"dropped by the client: {count} records, for which its buffer had no room"
    judged = eoctl("sim", "check", "play")
    assert judged.status == 0, judged.text
    assert words in judged.errors
    assert words in " ".join(on_terminal("sim", "check", "play", cwd=simulate.parent).text.split())
    text = eoctl(*call)
    assert text.status == 0
    assert "failed (dropped by the client: " in text.errors
    assert "dropped by the client: " in text.text
    assert "dropped" not in eoctl("sim", "run", "play", "--records", 5).errors


def test_a_fetch_that_waits_longer_than_a_follower_may_lag_is_refused(
    eoctl: Run, simulate: Path
) -> None:
    """KafkaConfig.validateValues: no broker starts with it."""
    call = ["sim", "init", "other", "--replica-lag-time-max-ms", 2000]
    outcome = eoctl(*call, "--replica-fetch-wait-max-ms", 2001)
    assert outcome.status == 2
    assert "--replica-fetch-wait-max-ms 2001: is longer than" in outcome.errors
    assert "--replica-fetch-wait-max-ms 2000, or less" in outcome.errors
    assert not (simulate.parent / "other").exists()
    assert eoctl(*call, "--replica-fetch-wait-max-ms", 2000).status == 0
    made = json.loads((simulate.parent / "other" / "cluster.json").read_text())["settings"]
    assert (made["fetch_min_bytes"], made["fetch_wait_max_ms"]) == (1, 2000)


def test_a_second_run_goes_on(eoctl: Run, simulate: Path) -> None:
    for _ in range(2):
        outcome = eoctl("sim", "run", "play", "--records", 50, "--faults", "kill any at 50%")
        assert outcome.status == 0, outcome.errors
    assert (simulate / "history-2.jsonl").exists()
    checked = eoctl("sim", "check", "play")
    assert checked.status == 0, checked.errors
    assert "100 acknowledged records" in checked.errors


def test_real_brokers_are_told_what_keeps_its_records(eoctl: Run, simulate: Path) -> None:
    """They are of the played clock's time, and its producers have ids that a real one would give."""
    assert eoctl("sim", "run", "play", "--records", 20).status == 0
    image = load_bootstrap_image(str(simulate / "real-controller"))
    assert image is not None
    assert image.topic_config("t", "retention.ms") == "-1"
    assert image.topic_config("t", "min.insync.replicas") == "2"
    assert image.next_producer_id == 1000


def test_what_forgot_its_disks_is_condemned(eoctl: Run, simulate: Path) -> None:
    outcome = eoctl("sim", "run", "play", "--records", 200, "--faults", "power all at 50%")
    assert outcome.status == 0, outcome.errors
    assert "has lost" in outcome.text
    checked = eoctl("sim", "check", "play", "-o", "jsonl")
    assert checked.status == 1, checked.errors
    found = rows(checked)
    lost = [each for each in found if each["kind"] == "lost-write"]
    assert lost
    assert "is in no replica" in lost[0]["words"]


def test_a_directory_that_was_changed_is_condemned(eoctl: Run, simulate: Path) -> None:
    """The checker believes files, not nodes."""
    assert eoctl("sim", "run", "play", "--records", 20).status == 0
    node = simulate / "node-1"
    cut = eoctl("truncate", node / "t-0", "--to-offset", 5, "--single-copy", "--apply")
    assert cut.status == 0, cut.errors
    for each in ("node-0", "node-2"):
        (simulate / each / "t-0" / f"{0:020d}.log").write_bytes(b"")
    checked = eoctl("sim", "check", "play", "-o", "jsonl")
    assert checked.status == 1
    assert {each["kind"] for each in rows(checked)} == {
        "lost-write", "precommitted-read", "damaged-replica", "replica-lags",
    }  # fmt: skip


@pytest.mark.exhaustive
def test_one_seed_is_one_course_of_events_in_every_process(tmp_path: Path) -> None:
    """On the disk too, byte for byte, whatever the hashes of texts are."""
    found = []
    faults = "partition leader at 20%, power follower at 40%, heal at 12s, start all at 15s"
    for number, hash_seed in enumerate(("0", "1", "4711")):
        path = tmp_path / str(number) / "play"
        path.parent.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        for call in (
            ["init", "play", "--nodes", "4", "--partitions", "3"],
            ["run", "play", "--records", "200", "--faults", faults, "--seed", "7"],
        ):
            subprocess.run(
                [sys.executable, "-m", "eoctl", "sim", *call],
                check=True,
                cwd=path.parent,
                env=environment,
                capture_output=True,
            )
        found.append(tree_of(path))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 40


def test_another_seed_is_another_course(eoctl: Run, tmp_path: Path) -> None:
    digests = set()
    for seed in (1, 2):
        path = tmp_path / str(seed)
        assert eoctl("sim", "init", path).status == 0
        run = eoctl("sim", "run", path, "--records", 50, "--faults", FAULTS, "--seed", seed)
        assert run.status == 0
        digests.add(hashlib.sha256((path / "history-1.jsonl").read_bytes()).hexdigest())
    assert len(digests) == 2


def test_without_healing_it_ends_as_it_is(eoctl: Run, simulate: Path) -> None:
    outcome = eoctl(
        "sim", "run", "play", "--records", 50, "--acks", "1", "--faults", "power all at 100%",
        "--no-heal",
    )  # fmt: skip
    assert outcome.status == 0, outcome.errors
    assert not [*simulate.glob("node-*/.kafka_cleanshutdown")]
    checked = eoctl("sim", "check", "play")
    assert checked.status == 5, checked.errors
    assert "may still come" in checked.errors


@pytest.mark.share(2)
@pytest.mark.parametrize("faults", ["kill follower at 90%", "kill all at 10%, start all at 90%"])
@pytest.mark.parametrize("rate", [0, 1])
def test_a_run_takes_all_its_records_however_long_that_takes(
    eoctl: Run, simulate: Path, monkeypatch: pytest.MonkeyPatch, faults: str, rate: int
) -> None:
    """Of 4,000 records, one a second, 3,601 were sent, and 90% came after 3,600; nobody said so."""
    monkeypatch.setattr(simulation, "STILL_US", 130_000_000)  # longer than an answer is waited for
    count = 300 if rate else 20
    ran = eoctl(
        "sim", "run", "play", "--rate", rate, "--records", count, "--faults", faults,
        "-o", "jsonl",
    )  # fmt: skip
    assert ran.status == 0, ran.errors
    history = [json.loads(each) for each in (simulate / "history-1.jsonl").read_text().splitlines()]
    reported = [(each.get("op"), each.get("type")) for each in history]
    assert reported.count(("send", "invoke")) == count
    fault = [place for place, each in enumerate(reported) if each[0] == "fault"][-1]
    assert reported[:fault].count(("send", "invoke")) >= 0.9 * count
    assert reported[: reported.index(("heal", "info"))].count(("send", "invoke")) == count
    assert eoctl("sim", "check", "play").status == 0


@pytest.mark.exhaustive
def test_records_that_were_never_given_are_told(
    eoctl: Run, simulate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Producer, "learn", lambda *_: None)
    ran = eoctl("sim", "run", "play", "--records", 7)
    assert ran.status == 5
    assert "of 7 records 0 were given to the producer" in ran.errors


@pytest.mark.exhaustive
def test_the_messages_rule_flaps_under_bursts(eoctl: Run, tmp_path: Path) -> None:
    """REPL-5, and why Kafka 0.9 went over to time: followers that keep up are thrown out."""
    counts = {}
    for rule in ("time", "messages"):
        path = tmp_path / rule
        assert eoctl(
            "sim", "init", path, "--isr-rule", rule, "--replica-lag-max-messages", 4,
            "--replica-lag-time-max-ms", 550,
        ).status == 0  # fmt: skip
        ran = eoctl(
            "sim", "run", path, "--records", 7000, "--rate", 10_000, "--linger-ms", 4,
            "--acks", "1", "-o", "jsonl",
        )  # fmt: skip
        assert ran.status == 0, ran.errors
        events = rows(ran)
        healed_us = next(each["time_us"] for each in events if "is healed" in each["words"])
        first = json.loads((path / "history-1.jsonl").read_text().splitlines()[1])
        counts[rule] = sum(
            each["event"] == "isr" and first["time_us"] < each["time_us"] < healed_us
            for each in events
        )
    assert counts["time"] == 0
    assert counts["messages"] >= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replication-factor", "4"], "there are 3 nodes"),
        (["--topic", "a/b"], "a/b"),
        (["--topic", "__cluster_metadata"], "the controller's own"),
        (["--nodes", "0"], "nodes"),
        (["--fsync", "sometimes"], "sometimes"),
    ],
)
def test_what_no_cluster_can_be_is_refused(
    eoctl: Run, tmp_path: Path, options: list[str], words: str
) -> None:
    outcome = eoctl("sim", "init", tmp_path / "new", *options)
    assert outcome.status == 2
    assert words in outcome.errors
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_not_touched(eoctl: Run, simulate: Path, kafka: Path) -> None:
    before = tree_of(simulate.parent)
    for target in ("play", "play/node-0", kafka):
        outcome = eoctl("sim", "init", target)
        assert outcome.status == 4
        assert "nothing was touched" in outcome.errors
    for call in ("run", "check"):
        outcome = eoctl("sim", call, kafka)
        assert outcome.status == 4
        assert "is no simulated cluster" in outcome.errors
    assert eoctl("sim", "init", simulate.parent / "no" / "where").status == 4
    assert tree_of(simulate.parent) == before


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "null", '{"eoctl_played_cluster": 9}', '{"eoctl_played_cluster": 1}', "\x00"],
)
def test_a_marker_that_is_none_is_refused(eoctl: Run, simulate: Path, content: str) -> None:
    (simulate / "cluster.json").write_text(content)
    outcome = eoctl("sim", "run", "play")
    assert outcome.status == 4
    assert "nothing was touched" in outcome.errors


def test_hostile_settings_are_refused(eoctl: Run, simulate: Path) -> None:
    value = json.loads((simulate / "cluster.json").read_text())
    for name, wrong in (("nodes", "3"), ("partitions", 0), ("replication_factor", 9)):
        changed = {**value, "settings": {**value["settings"], name: wrong}}
        (simulate / "cluster.json").write_text(json.dumps(changed))
        assert eoctl("sim", "run", "play").status == 4


def test_a_broker_that_runs_is_left_alone(eoctl: Run, simulate: Path) -> None:
    with take([simulate / "node-1"]), pytest.raises(LockHeldError), take([simulate / "node-1"]):
        pass
    code = (
        "import sys; from storage.files.broker_lock import take\n"
        f"with take([{str(simulate / 'node-1')!r}]): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    with holder:
        holder.stdout.readline()
        outcome = eoctl("sim", "run", "play")
        holder.stdin.close()
    assert outcome.status == 4
    assert "holds the lock" in outcome.errors
    assert not (simulate / "history-1.jsonl").exists()


@pytest.mark.exhaustive
def test_a_run_whose_driver_was_killed_is_told_of(eoctl: Run, simulate: Path) -> None:
    code = (
        "import os\n"
        "from eoctl.lab.simulation import Nemesis\n"
        "Nemesis.heal = lambda self: os.kill(os.getpid(), 9)\n"
        "from eoctl.main import run\n"
        "run(['sim', 'run', 'play', '--records', '3000'])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert killed.returncode == -9
    checked = checked_after_another_run(eoctl, simulate)
    assert "its last line has no end" in checked.errors or "lines of history" in checked.errors


def test_what_was_never_run_is_not_judged(eoctl: Run, simulate: Path) -> None:
    outcome = eoctl("sim", "check", "play")
    assert outcome.status == 2
    assert "was never run" in outcome.errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--faults", "melt all at 3s"], "is no fault"),
        (["--retries", "many"], "a number, or max"),
        (["--acks", "2"], "acks"),
        (["--records", "0"], "records"),
    ],
)
def test_wrong_calls(eoctl: Run, simulate: Path, options: list[str], words: str) -> None:
    outcome = eoctl("sim", "run", "play", *options)
    assert outcome.status == 2
    assert words in outcome.errors
    assert not (simulate / "history-1.jsonl").exists()


def test_a_history_that_is_damaged_is_judged_as_far_as_it_goes(eoctl: Run, simulate: Path) -> None:
    assert eoctl("sim", "run", "play", "--records", 20).status == 0
    path = simulate / "history-1.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b"nonsense\n")
    checked = eoctl("sim", "check", "play")
    assert checked.status == 5
    assert f"line {len(whole.splitlines()) + 1}: no JSON" in checked.errors
    path.write_bytes(b"nonsense")
    assert eoctl("sim", "check", "play").status == 4
    path.unlink()
    assert eoctl("sim", "check", "play").status == 3


def test_a_disk_that_no_broker_starts_on_is_told(eoctl: Run, simulate: Path) -> None:
    assert eoctl("sim", "run", "play", "--records", 20).status == 0
    (simulate / "controller" / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(b"")
    outcome = eoctl("sim", "run", "play", "--records", 20)
    assert outcome.status == 4
    assert "metadata" in outcome.errors


# --- explore --------------------------------------------------------------------------------------


def repeated(eoctl: Run, errors: str, root: Path) -> set[str]:
    """Make the calls that were printed; returns what is wrong then."""
    calls = [each for each in errors.splitlines() if each.startswith("eoctl sim ")]
    assert len(calls) == 3
    for call in calls[:2]:
        assert eoctl(*shlex.split(call.replace("./play", str(root)))[1:]).status == 0
    checked = eoctl("sim", "check", root, "-o", "jsonl")
    assert checked.status == 1
    return {each["kind"] for each in rows(checked)}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--acks", "1", "--faults", "kill"], "lost-write"),
        (["--acks", "all", "--min-insync-replicas", "1", "--faults", "kill,power"], "lost-write"),
        (["--no-idempotence", "--faults", "kill"], "duplicate"),
        (["--min-insync-replicas", "2", "--faults", "power"], "lost-write"),
        (["--truncation", "hw", "--in-flight", "1", "--faults", "kill"], "lost-write"),
    ],
)
def test_what_loses_is_found_and_repeated_by_the_calls_that_are_printed(
    eoctl: Run, tmp_path: Path, options: list[str], kind: str
) -> None:
    outcome = eoctl("sim", "explore", *options, "--seeds", 400, "-o", "jsonl")
    assert outcome.status == 1, outcome.errors
    found = rows(outcome)
    assert kind in {each["event"] for each in found}
    steps = ("fault", "start", "session", "election", "isr", "cut", "lost", "failed", "refused")
    assert 1 <= sum(each["event"] in steps for each in found) <= 12
    text = eoctl("sim", "explore", *options, "--seeds", 400)
    assert kind in repeated(eoctl, text.errors, tmp_path / "again")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        ["--min-insync-replicas", "2", "--faults", "kill,partition,stop"],
        ["--min-insync-replicas", "2", "--fsync", "batch", "--faults", "power,kill"],
    ],
)
def test_what_is_safe_loses_nothing(eoctl: Run, options: list[str]) -> None:
    outcome = eoctl("sim", "explore", *options, "--seeds", 50, "-o", "jsonl")
    assert (outcome.status, outcome.text) == (0, ""), outcome.errors
    assert "in 50 seeds" in outcome.errors


def test_explore_refuses_what_it_does_not_know(eoctl: Run) -> None:
    for options in (["--faults", "melt"], ["--faults", ""], ["--replication-factor", "5"]):
        assert eoctl("sim", "explore", *options).status == 2
