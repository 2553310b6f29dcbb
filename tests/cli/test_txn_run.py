"""`eoctl txn run`: what is committed is what the filter made of what was committed, exactly once."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.coordinators.log_dir_coordinator import GroupCommits
from eoctl.clients.user_programs import program
from eoctl.clock import wall_ms
from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.cluster.group_offsets import find_group_offsets
from storage.dirs.log_dir import read_log_dir
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from tests.changes import held, notes_of, rows_of
from tests.copying import write
from tests.crash.trees import difference, tree_of
from tests.transactional import open_partitions
from tests.writing import NEW_TOPIC, SMALL, tail_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

COPY = ("--exec", "cat", "--format", "jsonl", "--bytes", "base64")
IDENTITY = ("--transactional-id", "ctp", "--group", "new")
CALL = ("txn", "run", "kafka/txn-0", "kafka/txn-1", "--to", "kafka/ctp-out-0", *IDENTITY)


def records(eoctl: Callable[..., Outcome], path: object) -> list[tuple[Any, ...]]:
    outcome = eoctl(
        *("consume", path, "--isolation", "read_committed", "--output", "jsonl"),
        *("--bytes", "base64"),
    )
    assert outcome.status == 0, outcome.errors
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [
        (row["key"], row["value"], json.dumps(row["headers"]), row["timestamp_ms"])
        for row in rows
        if "offset" in row
    ]


def offset_of(log_dir: Path, topic: str, partition: int) -> int | None:
    found = find_group_offsets([read_log_dir(log_dir)], topic, partition)
    assert found is not None
    return next((each.offset for each in found.offsets if each.group == "new"), None)


def test_all_that_is_committed_comes_once(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """In order of each source, with keys, headers and times; a second run finds nothing to do."""
    known = records(eoctl, "kafka/ctp-out-0")
    wanted = [each for number in (0, 1) for each in records(eoctl, f"kafka/txn-{number}")]
    outcome = eoctl(*CALL, *COPY, "--txn-records", 40, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    rows = rows_of(outcome, "transform")
    assert sum(row["records_in"] for row in rows) == len(wanted)
    assert [(row["transactions"], row["applied"]) for row in rows] == [(5, True), (5, True)]
    assert records(eoctl, "kafka/ctp-out-0") == [*known, *wanted]
    assert [row["next_offset"] for row in rows] == [offset_of(kafka, "txn", n) for n in (0, 1)]
    outcome = eoctl(*CALL, *COPY, "--apply", "--output", "jsonl")
    assert [row["records_in"] for row in rows_of(outcome, "transform")] == [0, 0]
    assert len(records(eoctl, "kafka/ctp-out-0")) == len(known) + len(wanted)
    checked = eoctl("check", "kafka", "--deep", "--output", "jsonl")
    found = [each for each in rows_of(checked, "finding") if each["severity"] != "note"]
    assert {each["check_id"] for each in found} <= {"TXO-1"}  # the two that were open before


def test_the_plan_runs_nothing(kafka: Path, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    before = tree_of(kafka)
    outcome = eoctl(*CALL, "--exec", f"touch {tmp_path}/ran", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    rows = rows_of(outcome, "transform")
    assert [(row["records_in"], row["records_out"]) for row in rows] == [(188, None), (181, None)]
    assert "this is a plan, nothing was changed: --apply runs it" in notes_of(outcome)
    for number, offset in ((40, 311), (41, 282)):  # what holds the sources back
        assert f"open transaction: producer id {number} from offset {offset}" in notes_of(outcome)
    assert difference(before, tree_of(kafka)) == []
    assert not (tmp_path / "ran").exists()


def test_what_it_does_to_files_is_told(killed: Path, eoctl: Callable[..., Outcome]) -> None:
    """The recoveries that come first, the files, and what it costs; the plan tells the same."""
    call = ("txn", "run", "killed/txn-0", "--to", "killed/ctp-out-0", *IDENTITY, *COPY)
    plan, done = (eoctl(*call, *more, "--output", "jsonl") for more in ((), ("--apply",)))
    assert (plan.status, done.status) == (0, 0), plan.errors + done.errors
    steps = [each["file"] for each in rows_of(plan, "step")]
    assert steps == [each["file"] for each in rows_of(done, "step")]
    topics = {"ctp-out", "__transaction_state", "__consumer_offsets"}
    assert {each.rpartition("-")[0] for each in steps} == topics
    files = [
        {row["path"].split("/")[-2].rpartition("-")[0] for row in rows_of(outcome, "file")}
        for outcome in (plan, done)
    ]
    assert files == [{"__transaction_state"}, topics]
    assert any("the filter was not run" in each for each in notes_of(plan))
    for outcome in (plan, done):
        assert {row["cut_bytes"] for row in rows_of(outcome, "price")} == {0}
        reported = "\n".join(notes_of(outcome))
        assert "the log dir is without its clean-shutdown marker afterwards" in reported
        assert "it is recovered first, as a broker would" in reported
    assert any("eoctl undo" in each for each in notes_of(done))


def test_what_it_has_just_ended_in_a_source(killed: Path, eoctl: Callable[..., Outcome]) -> None:
    """Its own marker is not in the index of the source yet, and nothing is said to be missing."""
    call = ("txn", "run", "killed/txn-0", "--to", "killed/plain-1", "--group", "g", *COPY)
    outcome = eoctl(*call, "--transactional-id", "open-1", "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert "CONCURRENT_TRANSACTIONS: open-1: its transaction was aborted" in notes_of(outcome)
    assert ".txnindex" not in "\n".join(notes_of(outcome))
    assert rows_of(outcome, "transform")[0]["next_offset"] == 330


def test_new_partitions_are_part_of_the_price(log_dir: Path, eoctl: Callable[..., Outcome]) -> None:
    """Of a target and of the coordinators' topics that were made: a start recovers them, too."""
    new = ("--topic-id", "AAECAwQFBgcICQoLDA0ODw", "--single-copy", "--apply", "--output", "jsonl")
    outcome = eoctl("produce", log_dir / "in-0", __file__, *new)
    reported = "\n".join(notes_of(outcome))
    log_bytes = (log_dir / f"in-0/{0:020d}.log").stat().st_size
    assert (
        f"The next start of the broker recovers 1 partition, {log_bytes:,} bytes of log" in reported
    )
    new = ("--topic-id", "AAECAwQFBgcICQoLDA0OEA", *new[2:])
    call = ("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *COPY)
    reported = "\n".join(notes_of(eoctl(*call, *new)))
    logs = [each for each in log_dir.glob("*/*.log") if each.stat().st_size]
    log_bytes = sum(each.stat().st_size for each in logs)
    assert re.search(rf"recovers \d+ partitions, {log_bytes:,} bytes of log", reported)
    for topic in ("__transaction_state", "__consumer_offsets"):
        assert reported.count(f"{log_dir}: {topic} is made here; a KRaft broker whose cluster") == 1


def test_a_group_goes_on_in_steps(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Up to a number of transactions; a filter that drops records moves the offsets all the same."""
    one = ("txn", "run", "kafka/plain-0", "--to", "kafka/ctp-out-0", *IDENTITY, "--format", "jsonl")
    known = records(eoctl, "kafka/ctp-out-0")
    wanted = records(eoctl, "kafka/plain-0")
    for number in (1, 2):
        outcome = eoctl(
            *(*one, "--exec", "cat", "--bytes", "base64", "--txn-records", 30),
            *("--max-transactions", 1, "--apply"),
        )
        assert outcome.status == 0, outcome.errors
        assert records(eoctl, "kafka/ctp-out-0") == [*known, *wanted[: 30 * number]]
    assert eoctl(*one, "--exec", "true", "--apply").status == 0
    assert records(eoctl, "kafka/ctp-out-0") == [*known, *wanted[:60]]
    assert offset_of(kafka, "plain", 0) == 179


def test_a_filter_that_fails(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Nothing is begun: no offset moves, and nothing appears, not even to read_uncommitted."""
    before = tree_of(kafka / "ctp-out-0")
    words = {
        "false": "ended with exit status 1, given offsets 0 to",
        "no-such-program": "No such file",
        "sh -c 'kill -9 $$'": "was killed by signal 9",
    }
    for command, reported in words.items():
        arguments = ("--exec", command, "--format", "jsonl", "--bytes", "base64", "--apply")
        outcome = eoctl(*CALL, *arguments)
        assert outcome.status == 3, outcome.errors
        assert reported in outcome.errors
    outcome = eoctl(*CALL, "--exec", "echo {", "--format", "jsonl", "--apply")
    assert outcome.status == 2
    assert "its output" in outcome.errors
    assert difference(before, tree_of(kafka / "ctp-out-0")) == []
    assert offset_of(kafka, "txn", 0) is None


def test_the_groups_offsets_are_not_here(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Nothing is begun: not even a session of the transactional id."""
    home = GroupCommits("new", str(kafka), None).partition
    (kafka / f"{GROUPS_TOPIC}-{home}").rename(kafka.parent / "gone")
    before = tree_of(kafka)
    outcome = eoctl(*CALL, *COPY, "--apply")
    assert outcome.status == 4
    assert f"{GROUPS_TOPIC}-{home} is not here" in outcome.errors
    assert [each for each in difference(before, tree_of(kafka)) if ".lock" not in each] == []


def test_what_the_target_refuses_is_aborted(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """A record that is too large: the transaction ends with ABORT, and the offset stays."""
    known = records(eoctl, "kafka/ctp-out-0")
    too_large = "head -c 2000000 /dev/zero"
    outcome = eoctl(*CALL[:3], *CALL[4:], "--exec", too_large, "--format", "lines", "--apply")
    assert outcome.status == 4
    assert "has no value" in outcome.errors  # a null among the first 500
    arguments = ("--exec", too_large, "--txn-records", 20, "--apply")
    outcome = eoctl(*CALL[:3], *CALL[4:], *arguments)
    assert outcome.status == 4, outcome.errors
    assert "MESSAGE_TOO_LARGE" in outcome.errors
    assert records(eoctl, "kafka/ctp-out-0") == known
    assert offset_of(kafka, "txn", 0) is None
    state = CoordinatorLog([read_log_dir(kafka)]).ids["ctp"].state
    assert state is not None
    assert state.status.label == "CompleteAbort"


def test_what_was_begun_is_closed_if_the_group_cannot_go_on(
    kafka: Path, eoctl: Callable[..., Outcome]
) -> None:
    offsets, partitions = GroupCommits("new", str(kafka), None), open_partitions(kafka)
    offsets.commit(partitions, {TopicPartition("txn", 0): 10**6}, wall_ms)
    assert partitions.close() is None
    outcome = eoctl(*CALL, *COPY, "--apply")
    assert outcome.status == 4
    assert "1000000" in outcome.errors
    state = CoordinatorLog([read_log_dir(kafka)]).ids["ctp"]
    assert state.state is not None
    for name in (f"{TRANSACTION_STATE_TOPIC}-{state.partition}", "ctp-out-0"):
        end_offset = tail_at(kafka / name, SMALL).end_offset
        assert (kafka / name / f"{end_offset:020}.snapshot").exists(), name


def test_what_is_refused_before(
    kafka: Path, golden: Callable[[str], Path], eoctl: Callable[..., Outcome]
) -> None:
    """One transaction is of one cluster, and source and target are two."""
    before = tree_of(kafka)
    elsewhere = golden("kafka-4.3.1-three-brokers") / "after" / "broker-1" / "div-0"
    outcome = eoctl("txn", "run", elsewhere, *CALL[4:], *COPY, "--apply")
    assert outcome.status == 4
    assert f"copy {elsewhere} there with eoctl copy" in outcome.errors
    assert eoctl("txn", "run", "kafka/ctp-out-0", *CALL[4:], *COPY, "--apply").status == 2
    (kafka.parent / "copy").mkdir()
    (kafka.parent / "copy/txn-0").symlink_to(kafka / "txn-0")
    for twice in ("kafka/../kafka/txn-0", "copy/txn-0"):
        outcome = eoctl(*CALL[:4], twice, *CALL[4:], *COPY, "--apply")
        assert outcome.status == 2, "its records would be there twice"
        assert "is a source twice" in outcome.errors
    (kafka.parent / "copy/other-0").symlink_to(kafka / "txn-0")
    outcome = eoctl(*CALL[:3], "copy/other-0", *CALL[4:], *COPY, "--apply")
    assert outcome.status != 0, "its records would be there twice"
    outcome = eoctl(*CALL, *COPY, "--partitions", 2, "--apply")
    assert outcome.status == 2
    assert "--partitions goes with --to-topic" in outcome.errors
    replicas = [elsewhere.parent.parent / f"broker-{each}/div-0" for each in (1, 2)]
    call = ("txn", "run", replicas[0], "--to", replicas[1], *IDENTITY, "--single-copy")
    outcome = eoctl(*call, *COPY, "--apply")
    assert outcome.status == 2
    assert "is another replica of" in outcome.errors
    assert eoctl(*CALL, "--exec", "cat", "--format", "msgpack", "--apply").status == 2
    assert eoctl(*CALL, "--exec", "", "--apply").status == 2
    compacted = ("txn", "run", "kafka/txn-0", "--to", "kafka/compacted-0", *IDENTITY)
    assert eoctl(*compacted, "--exec", "cat", "--apply").status == 2
    with held(kafka):
        assert eoctl(*CALL, *COPY, "--apply").status == 4
    assert difference(before, tree_of(kafka)) == []


def test_interrupted_while_the_filter_runs(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Ctrl-C ends the filter; everything is closed, and the next run goes on."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "eoctl", *CALL[:3], *CALL[4:], "--apply"),
            *("--format", "jsonl", "--exec", "sh -c 'touch ran; exec sleep 600'"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline_s = time.monotonic() + 60
    while not (kafka.parent / "ran").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert offset_of(kafka, "txn", 0) is None
    outcome = eoctl(*CALL, *COPY, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert not any("recovered first" in note for note in notes_of(outcome))


def test_offsets_that_are_gone_are_not_begun_anew(
    eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    """Else all that was consumed would be consumed, and committed, once more."""
    write(log_dir / "in-0", None)
    call = ("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *NEW_TOPIC)
    assert eoctl(*call, "--exec", "cat", "--apply").status == 0
    home = max(log_dir.glob("__consumer_offsets-*/*.log")).parent
    shutil.rmtree(home)
    outcome = eoctl(*call, "--exec", "cat", "--apply")
    assert outcome.status == 4
    assert "__consumer_offsets has gaps here" in outcome.errors
    assert not home.exists()


def test_a_group_that_began_at_the_end_goes_on_there(
    eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    """Also where there was nothing to do: what comes until the next run is not passed over."""
    write(log_dir / "in-0", None)
    call = (
        *("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *NEW_TOPIC),
        *("--from", "latest", "--exec", "cat", "--apply"),
    )
    assert eoctl(*call).status == 0
    write(log_dir / "in-0", None)
    assert eoctl(*call).status == 0
    values = [[each[1] for each in records(eoctl, log_dir / name)] for name in ("in-0", "out-0")]
    assert values[1] == values[0][10:]


@pytest.mark.parametrize("is_cut", [False, True])
def test_records_that_go_while_it_reads(
    eoctl: Callable[..., Outcome], log_dir: Path, tmp_path: Path, *, is_cut: bool
) -> None:
    """They are not passed over as if they had been transformed."""
    small = ("--batch-bytes", 300, "--segment-bytes", 1000)
    assert eoctl("produce", log_dir / "in-0", __file__, *small, *NEW_TOPIC, "--apply").status == 0
    logs = sorted((log_dir / "in-0").glob("*.log"))
    gone = logs[1:] if is_cut else logs[:3]
    taking_away = tmp_path / "take-away"
    taking_away.write_text(
        f"rm -f {' '.join(map(str, gone))}\n" + (f": > {logs[0]}\n" if is_cut else "") + "cat\n"
    )
    call = ("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *NEW_TOPIC)
    more = ("--exec", f"sh {taking_away}", "--format", "jsonl", "--txn-records", 5, "--apply")
    outcome = eoctl(*call, *more)
    assert outcome.status == 4
    words = "was truncated to offset 0, and read up to" if is_cut else "were deleted before they"
    assert words in outcome.errors
    first_offset = int(logs[1].stem)
    assert offset_of(log_dir, "in", 0) == first_offset
    assert len(records(eoctl, log_dir / "out-0")) == first_offset


def test_a_recovery_is_told(eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    write(log_dir / "in-0", None)
    call = ("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *NEW_TOPIC)
    assert eoctl(*call, "--exec", "cat", "--apply").status == 0
    with (log_dir / "out-0" / f"{0:020d}.log").open("ab") as log:
        log.write(b"torn")
    outcome = eoctl(*call, "--exec", "cat", "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert any("recovered first" in note for note in notes_of(outcome))
    assert any("eoctl undo" in note for note in notes_of(outcome))


def test_offsets_that_are_damaged_are_not_cut_off(
    eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    write(log_dir / "in-0", None)
    call = ("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *NEW_TOPIC)
    assert eoctl(*call, "--exec", "cat", "--apply").status == 0
    log = max(log_dir.glob("__consumer_offsets-*/*.log"))
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    outcome = eoctl(*call, "--exec", "cat", "--apply")
    assert outcome.status == 4
    assert "cannot be read whole" in outcome.errors
    assert log.read_bytes() == data


def test_a_filter_that_answers_without_end(
    kafka: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended with all that it has started, and nothing was sent."""
    monkeypatch.setattr(program, "MAX_FILTERED_BYTES", 1 << 20)
    before = records(eoctl, "kafka/ctp-out-0")
    outcome = eoctl(*CALL, "--format", "jsonl", "--exec", "sh -c 'yes {}; true'", "--apply")
    assert outcome.status == 3
    assert "answers with more than 1048576 bytes, given offsets" in outcome.errors
    assert "--txn-records" in outcome.errors
    assert records(eoctl, "kafka/ctp-out-0") == before
    assert offset_of(kafka, "txn", 0) is None


@pytest.mark.parametrize(
    "option, name", [("--group", "g" * 32768), ("--group", "\udcff"),
                     ("--transactional-id", "x" * 32768), ("--transactional-id", "\udcff")]
)  # fmt: skip
def test_names_that_no_record_can_hold(
    option: str, name: str, eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    """They are refused before a transaction is begun, and before a topic is made."""
    write(log_dir / "in-0", None)
    before = tree_of(log_dir)
    call = ("txn", "run", log_dir / "in-0", "--to", log_dir / "out-0", *IDENTITY, *NEW_TOPIC)
    outcome = eoctl(*call, "--exec", "cat", option, name, "--apply")
    assert outcome.status == 2, outcome.errors
    after = tree_of(log_dir)
    assert [each for each in difference(before, after) if ".lock" not in str(each)] == []


@pytest.mark.share(2)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_keys_choose_the_partition(
    kafka: Path, eoctl: Callable[..., Outcome], version: int
) -> None:
    """With a topic as target: by Kafka's hash, as its own producer does it."""
    keyed = [f"k{number % 7}" for number in range(40)]
    lines = "".join(f'{{"key":"{key}","value":"{n}"}}\n' for n, key in enumerate(keyed))
    (kafka.parent / "lines").write_text(lines)
    ends = {number: len(records(eoctl, f"kafka/plain-{number}")) for number in (0, 1)}
    outcome = eoctl(
        *("txn", "run", "kafka/txn-0", "--to", "kafka", "--to-topic", "plain", *IDENTITY),
        *("--exec", "cat lines", "--format", "jsonl", "--max-transactions", 1),
        *("--transaction-version", version, "--apply"),
    )
    assert outcome.status == 0, outcome.errors
    found = [
        [each[:2] for each in records(eoctl, f"kafka/plain-{number}")[ends[number] :]]
        for number in (0, 1)
    ]
    expected = eoctl(
        "produce", "kafka", "lines", "--to-topic", "plain", "--format", "jsonl", "--apply"
    )
    assert expected.status == 0, expected.errors
    again = [
        [each[:2] for each in records(eoctl, f"kafka/plain-{number}")[ends[number] :]]
        for number in (0, 1)
    ]
    assert [[*each, *each] for each in found] == again


# The filter names a topic in each line, in turn.
IN_TURN = """awk 'BEGIN { n = 0 } { sub(/^{/, "{\\"topic\\":\\"" (n++ % 2 ? "plain" : "ctp-out") "\\",");
 sub(/"topic":"txn",/, ""); print }'"""
SEVERAL = (
    *("txn", "run", "kafka/txn-0", "--to", "kafka", "--to-topic", "plain", "--to-topic", "ctp-out"),
    *IDENTITY,
    *("--format", "jsonl", "--bytes", "base64"),
)


def test_several_topics_in_one_transaction(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Each line goes where it says, and the transactions are of both topics."""
    sinks = ("ctp-out-0", "plain-0", "plain-1")
    known = {name: len(records(eoctl, f"kafka/{name}")) for name in sinks}
    wanted = [each[:2] for each in records(eoctl, "kafka/txn-0")]
    outcome = eoctl(
        *SEVERAL, "--exec", IN_TURN, "--txn-records", 40, "--apply", "--output", "jsonl"
    )
    assert outcome.status == 0, outcome.errors
    (row,) = rows_of(outcome, "transform")
    assert row["records_in"] == row["records_out"] == len(wanted)
    found = {
        name: [e[:2] for e in records(eoctl, f"kafka/{name}")[known[name] :]] for name in sinks
    }
    given = {f"{e['topic']}-{e['partition']}": e["records"] for e in rows_of(outcome, "sink")}
    assert given == {name: len(each) for name, each in found.items()}
    assert sum(given.values()) == row["records_out"]
    # The filter begins anew with each transaction of an even number of records.
    assert found["ctp-out-0"] == wanted[::2]
    assert sorted([*found["plain-0"], *found["plain-1"]], key=str) == sorted(wanted[1::2], key=str)
    ended = rows_of(eoctl("txn", "list", "kafka", "--all", "--output", "jsonl"), "transaction")
    ours = [e for e in ended if e["transactional_id"] == "ctp" and e["state"] == "committed"]
    epochs = {
        topic: {e["producer_epoch"] for e in ours if e["topic"] == topic}
        for topic in ("ctp-out", "plain", "__consumer_offsets")
    }
    assert len(epochs["plain"] & epochs["ctp-out"] & epochs["__consumer_offsets"]) >= 5
    again = eoctl(*SEVERAL, "--exec", IN_TURN, "--apply", "--output", "jsonl")
    assert rows_of(again, "transform")[0]["records_in"] == 0
    assert {each["records"] for each in rows_of(again, "sink")} == {0}
    assert rows_of(eoctl(*SEVERAL, "--exec", IN_TURN, "--output", "jsonl"), "sink") == []


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"value":"x"}', "topic: expected one of 'plain', 'ctp-out', found none"),
        ('{"value":"x","topic":"txn"}', "found 'txn'"),
        ('{"value":"x","topic":7}', "found an integer"),
        ("[]", "found none"),
    ],
)
def test_a_line_that_names_no_topic_ends_it(
    line: str, words: str, kafka: Path, eoctl: Callable[..., Outcome]
) -> None:
    """Behind a good one: nothing of the transaction is begun."""
    (kafka.parent / "lines").write_text('{"value":"good","topic":"plain"}\n' + line + "\n")
    before = offset_of(kafka, "txn", 0)
    outcome = eoctl(*SEVERAL, "--exec", "cat lines", "--apply")
    assert outcome.status == 2
    assert words in outcome.errors
    assert "line 2" in outcome.errors
    assert offset_of(kafka, "txn", 0) == before
    assert not [each for each in records(eoctl, "kafka/plain-0") if each[1] == "good"]


def test_what_cannot_be_of_several_topics(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    to = ("txn", "run", "kafka/txn-0", "--to", "kafka", *IDENTITY, "--exec", "cat")
    for more, words in (
        (("--to-topic", "plain", "--to-topic", "plain"), "--to-topic plain: is given twice"),
        (("--to-topic", "plain", "--to-topic", "ctp-out"), "lines have no names"),
        (("--to-topic", "plain", "--to-topic", "txn", "--format", "jsonl"), "source and target"),
        (
            *(("--to-topic", "plain", "--to-topic", "ctp-out", "--topic-id", "A" * 22),),
            "--topic-id belongs to one topic",
        ),
    ):
        outcome = eoctl(*to, *more, "--apply")
        assert outcome.status == 2, outcome.errors
        assert words in outcome.errors
