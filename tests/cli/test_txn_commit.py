"""`eoctl txn commit`: a decision made elsewhere is carried out as a coordinator would, or refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.coordinators.log_dir_coordinator import GroupCommits
from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.formats.transaction_state import TransactionStatus
from tests.changes import in_80_columns, in_a_closed_pipe, journal_of, notes_of, rows_of
from tests.crash.trees import tree_of
from tests.hanging import newest_state, replace_state
from tests.kafka.broker import copy_log_dir
from tests.transactional import session
from tests.writing import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

NOW = ("--now", "2026-11-21T04:00:00Z")
OPEN_1 = ("--transactional-id", "open-1", "--producer-id", 40, "--producer-epoch", 0)
COMMIT = ("txn", "commit", "kafka", *OPEN_1, *NOW)


def committed(eoctl: Callable, partition: object) -> list[str]:
    outcome = eoctl("consume", partition, "--isolation", "read_committed", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    return [each["value"] for each in rows_of(outcome)]


def require_refused(eoctl: Callable, *words: str, call: tuple[Any, ...] = COMMIT) -> Outcome:
    """With and without --apply, for these reasons, and nothing is touched."""
    before = tree_of(Path("kafka"))
    for more in ((), ("--apply",)):
        outcome = eoctl(*call, *more)
        assert outcome.status == 4, outcome.errors
        for each in words:
            assert each in outcome.errors
    assert tree_of(Path("kafka")) == before
    return outcome


# --- done -----------------------------------------------------------------------------------------


def test_it_is_shown_done_and_taken_back(kafka: Path, eoctl: Callable) -> None:
    before, hidden = tree_of(kafka), committed(eoctl, "kafka/txn-0")
    outcome = eoctl(*COMMIT, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert tree_of(kafka) == before
    (planned,) = rows_of(outcome, "commit")
    assert (planned["status"], planned["outcome"], planned["applied"]) == (
        *("Ongoing", "committed"),
        False,
    )
    (price,) = rows_of(outcome, "price")
    assert (price["committed_records_count"], price["markers_count"]) == (7, 1)

    outcome = eoctl(*COMMIT, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    (marker,) = rows_of(outcome, "marker")
    assert (marker["first_offset"], marker["marker_offset"], marker["applied"]) == (311, 329, True)
    assert (marker["last_stable_offset_before"], marker["last_stable_offset_after"]) == (311, 330)
    given = committed(eoctl, "kafka/txn-0")
    assert len(given) == len(hidden) + 18  # what it held back, too
    _, state = newest_state(kafka, "open-1")
    assert (state.status, state.producer_id, state.producer_epoch) == (
        TransactionStatus.COMPLETE_COMMIT,
        40,
        0,
    )
    assert not (kafka / CLEAN_SHUTDOWN_NAME).exists()

    again = eoctl(*COMMIT, "--apply", "--output", "jsonl")
    assert again.status == 0
    assert [each["outcome"] for each in rows_of(again, "commit")] == ["committed already"]
    assert any("committed already" in note for note in notes_of(again))
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert tree_of(kafka) == before


@pytest.mark.parametrize("version", [0, 2])
def test_several_partitions_and_the_offsets_of_a_group(
    version: int, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As our coordinator ends it itself, to the byte: markers, and its own records."""

    def begin(log_dir: Path) -> tuple[int, int]:
        with session(log_dir, "sink", version=version, timeout_ms=600_000) as begun:
            begun.send("txn", 0, b"one", b"two")
            begun.send("txn", 1, b"three")
            offsets = GroupCommits("jobs", str(log_dir), None)
            begun.transactional.commit_offsets(offsets, {("plain", 0): 7})
            if log_dir.name == "other":
                begun.transactional.end(is_commit=True)
            return begun.transactional.producer

    monkeypatch.setattr("tests.transactional.wall_ms", lambda: 1_795_229_999_000)
    monkeypatch.setattr(
        "eoctl.clients.partitions.open_partition.wall_ms", lambda: 1_795_229_999_000
    )
    monkeypatch.setattr(
        "eoctl.clients.partitions.identity.random_producer_ids", lambda: iter([4242])
    )
    other = copy_log_dir(kafka, kafka.parent / "other")
    producer_id, epoch = begin(kafka)
    begin(other)
    outcome = eoctl(
        *("txn", "commit", "kafka", "--transactional-id", "sink", "--producer-id", producer_id),
        *("--producer-epoch", epoch, "--now", "1795229999000", "--apply", "--output", "jsonl"),
    )
    assert outcome.status == 0, outcome.errors
    (row,) = rows_of(outcome, "commit")
    raised = epoch + (version == 2)
    assert (row["next_producer_id"], row["next_producer_epoch"]) == (producer_id, raised)
    markers = rows_of(outcome, "marker")
    assert {each["topic"] for each in markers} == {"txn", "__consumer_offsets"}
    assert {each["marker_epoch"] for each in markers} == {raised}
    state = newest_state(kafka, "sink")[0].name
    for name in (state, *(f"{each['topic']}-{each['partition']}" for each in markers)):
        ours, theirs = (
            b"".join(each.read_bytes() for each in sorted((log_dir / name).glob("*.log")))
            for log_dir in (kafka, other)
        )
        assert ours == theirs, name
    assert "sink" not in eoctl("txn", "list", "kafka").text
    groups = rows_of(eoctl("groups", "describe", "kafka", "--output", "jsonl"))
    assert [(e["topic"], e["committed_offset"]) for e in groups if e.get("group") == "jobs"] == [
        ("plain", 7)
    ]


def test_it_goes_on_where_it_was_decided(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PrepareCommit is on the disk, the markers are not; then nothing is to be decided again."""
    with session(kafka, "sink", version=2) as begun:
        begun.send("txn", 1, b"decided")
        producer = begun.transactional.producer
        begun.prepare(monkeypatch, is_commit=True)
    directory, state = newest_state(kafka, "sink")
    end_offset = headers_of(directory)[-1].last_offset
    call = (
        *("txn", "commit", "kafka", "--transactional-id", "sink"),
        *("--producer-id", producer.producer_id, "--producer-epoch", producer.producer_epoch),
    )
    outcome = eoctl(*call, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert rows_of(outcome, "commit")[0]["status"] == "PrepareCommit"
    assert headers_of(directory)[-1].last_offset == end_offset + 1
    assert newest_state(kafka, "sink")[1] == state._replace(
        previous_producer_id=state.producer_id,
        transaction_status=TransactionStatus.COMPLETE_COMMIT,
        partitions=(),
        last_update_timestamp_ms=newest_state(kafka, "sink")[1].last_update_timestamp_ms,
    )


def test_epochs_that_are_used_up(kafka: Path, eoctl: Callable) -> None:
    """The marker has the last epoch, which no data may have, and the id goes on as another one."""
    with session(kafka, "sink", version=2):
        pass
    replace_state(kafka, "sink", producer_epoch=32765)
    with session(kafka, "sink", version=2, timeout_ms=600_000) as begun:
        begun.send("txn", 1, b"the last one")
        producer = begun.transactional.producer
    assert producer.producer_epoch == 32766
    call = (
        *("txn", "commit", "kafka", "--transactional-id", "sink", "--producer-epoch", 32766),
        *("--producer-id", producer.producer_id, "--apply", "--output", "jsonl"),
    )
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    (row,) = rows_of(outcome, "commit")
    assert row["next_producer_epoch"] == 0
    assert row["next_producer_id"] not in {producer.producer_id, -1}
    assert [each["marker_epoch"] for each in rows_of(outcome, "marker")] == [32767]
    again = eoctl(*call)
    assert (again.status, rows_of(again, "commit")[0]["outcome"]) == (0, "committed already")
    with session(kafka, "sink", version=2) as begun:
        begun.send("txn", 1, b"the next one")
        assert begun.transactional.producer == (row["next_producer_id"], 1)
        begun.transactional.end(is_commit=True)


def flink(*each: tuple[str, int, int], is_versioned: bool = False) -> bytes:
    """As Flink's KafkaCommittableSerializer has it."""
    data = b""
    for name, producer_id, epoch in each:
        text = name.encode()
        one = struct.pack(">hqH", epoch, producer_id, len(text)) + text
        data += struct.pack(">ii", 1, len(one)) + one if is_versioned else one
    return data


BOTH = (("open-1", 40, 0), ("open-2", 41, 0))
AS_JSON = "".join(
    json.dumps({"transactional_id": name, "producer_id": pid, "producer_epoch": epoch}) + "\n"
    for name, pid, epoch in BOTH
)
FILES = {
    "json lines": AS_JSON.encode(),
    "csv": b'transactional_id,producer_id,producer_epoch\r\n"open-1",40,0\r\nopen-2, 41, 0\r\n',
    "flink": flink(*BOTH),
    "flink, versioned": flink(*BOTH, is_versioned=True),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", FILES)
def test_several_from_a_file(name: str, kafka: Path, eoctl: Callable) -> None:
    (kafka.parent / "decided").write_bytes(FILES[name])
    outcome = eoctl(
        "txn", "commit", "kafka", "--from-file", "decided", *NOW, "--apply", "--output", "jsonl"
    )
    assert outcome.status == 0, outcome.errors
    assert [each["transactional_id"] for each in rows_of(outcome, "commit")] == ["open-1", "open-2"]
    assert [(e["topic"], e["partition"]) for e in rows_of(outcome, "marker")] == [
        ("txn", 0),
        ("txn", 1),
    ]
    assert eoctl("txn", "list", "kafka").text.count("\n") == 1


@pytest.mark.exhaustive
def test_many_of_one_coordinator_in_one_partition(kafka: Path, eoctl: Callable) -> None:
    """As of a checkpoint: one plan, one segment of markers, and one of each kind of records."""
    lines = []
    for number in range(6):  # of four partitions of the coordinators' topic
        with session(
            kafka, f"sink-{number}", version=2 * (number % 2), timeout_ms=600_000
        ) as begun:
            begun.send("txn", 1, b"of %d" % number)
            lines.append(f"sink-{number},{','.join(map(str, begun.transactional.producer))}\n")
    (kafka.parent / "decided").write_text("open-2,41,0\n" + "".join(lines))
    before = {path.name for path in (kafka / "txn-1").glob("*.log")}
    outcome = eoctl("txn", "commit", "kafka", "--from-file", "decided", "--apply", "-o", "jsonl")
    assert outcome.status == 0, outcome.errors
    steps = [each["file"] for each in rows_of(outcome, "step") if each["file"].endswith(".log")]
    kinds = ["state" if each.startswith("__transaction_state") else each for each in steps]
    (marker,) = {path.name for path in (kafka / "txn-1").glob("*.log")} - before
    middle = kinds.index(f"txn-1/{marker}")
    assert kinds == ["state"] * middle + [kinds[middle]] + ["state"] * middle
    assert middle < 7  # several of them share a segment
    offsets = [each["marker_offset"] for each in rows_of(outcome, "marker")]
    assert sorted(offsets) == list(range(min(offsets), min(offsets) + 7))
    assert committed(eoctl, "kafka/txn-1")[-6:] == [f"of {number}" for number in range(6)]
    checked = rows_of(eoctl("check", "kafka", "--deep", "-o", "jsonl"), "finding")
    found = {
        (e["check_id"], Path(e["path"]).parent.name) for e in checked if e["severity"] != "note"
    }
    assert found == {("TXO-1", "txn-0")}  # open-1, which nobody has decided


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "there is no transaction in it"),
        (b"\n", "there is no transaction in it"),
        (b'{"transactional_id": "a"}', "line 1: lacks producer_id, producer_epoch"),
        (b'{"transactional_id": "a", "producer_id": 1.5, "producer_epoch": 0}', "whole numbers"),
        (b'{"transactional_id": "a", "producer_id": true, "producer_epoch": 0}', "whole numbers"),
        (b'{"transactional_id": ', "line 1: no JSON"),
        (b'{"producer_id": 1, "producer_id": 40, "producer_epoch": 0}', "a name occurs twice"),
        (b"a,1\n", "line 1: are not the three fields"),
        (b"open-1,4_0,0\n", "line 1: are not the three fields"),
        (b"open-1,+40,0\n", "line 1: are not the three fields"),
        ("open-1,\u0664\u0660,0\n".encode(), "line 1: are not the three fields"),
        (b"a,1,99999\n", "line 1: 99999 is no producer epoch"),
        (b"a,-1,0\n", "line 1: -1 is no producer id"),
        (b",1,0\n", "the transactional id is empty"),
        (b"\xff\xfe", "position 0: is no text"),
        (flink(("a", 1, 0))[:-1], "and then it ends"),
        (flink(("a", 1, 0)) + b"\0", "position 13: ends within a committable"),
        (flink(("a", -1, 0)), "-1 is no producer id"),
        (flink(("a", 1, 0), is_versioned=True)[:-1], "position 8: 13 bytes, 12 are left"),
        (struct.pack(">hqH", 0, 1, 1) + b"\xff", "no transactional id"),
        (AS_JSON.encode() + b"open-1,40,1\n", "open-1 is given twice"),
    ],
)
def test_a_file_that_is_none(data: bytes, words: str, tmp_path: Path, eoctl: Callable) -> None:
    (tmp_path / "decided").write_bytes(data)
    outcome = eoctl("txn", "commit", tmp_path, "--from-file", tmp_path / "decided")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert words in outcome.errors
    assert "Traceback" not in outcome.errors


def test_wrong_calls(kafka: Path, eoctl: Callable) -> None:
    for call, words in (
        (("kafka",), "--transactional-id, --producer-id, --producer-epoch not given"),
        (("kafka", *OPEN_1[:4]), "--producer-epoch not given"),
        (("kafka", *OPEN_1, "--from-file", "x"), "--from-file has all of each transaction"),
        (("kafka/txn-0", *OPEN_1), "not a log dir"),
        ((), "is missing"),
    ):
        outcome = eoctl("txn", "commit", *call)
        assert outcome.status == 2, outcome.errors
        assert words in outcome.errors
    assert eoctl("txn", "commit", "kafka", "--from-file", "nowhere").status == 3


# --- refused --------------------------------------------------------------------------------------


def test_another_producer_is_refused(kafka: Path, eoctl: Callable) -> None:
    def call(*values: object) -> tuple[Any, ...]:
        names = ("--transactional-id", "--producer-id", "--producer-epoch")
        pairs = zip(names, values, strict=True)
        return ("txn", "commit", "kafka", *(word for pair in pairs for word in pair), *NOW)

    require_refused(eoctl, "as Ongoing, with producer id 40", call=call("open-1", 41, 0))
    words = (
        "with producer id 40 and epoch 0: epoch 1 is newer: check it for a typing error; if it is"
        " right, the coordinator's log has lost its newest records"
    )
    require_refused(eoctl, words, call=call("open-1", 40, 1))
    words = "check producer id 41 for a typing error; if it is right, its transaction has ended"
    require_refused(eoctl, words, call=call("open-1", 41, 0))
    require_refused(eoctl, "knows no such id", call=call("open-9", 40, 0))
    replace_state(kafka, "open-1", producer_epoch=1)
    require_refused(eoctl, "a newer producer or transaction has the id", call=call("open-1", 40, 0))


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"transaction_status": TransactionStatus.PREPARE_ABORT}, "it was aborted"),
        ({"transaction_status": TransactionStatus.COMPLETE_ABORT}, "it was aborted"),
        (
            {"transaction_status": TransactionStatus.COMPLETE_ABORT, "producer_epoch": 1},
            "it was aborted",
        ),
        (
            {
                "transaction_status": TransactionStatus.COMPLETE_ABORT,
                "producer_epoch": 1,
                "client_transaction_version": 2,
            },
            "it was aborted",
        ),
        ({"transaction_status": TransactionStatus.EMPTY, "partitions": None}, "may have been"),
        (
            {"transaction_status": TransactionStatus.COMPLETE_COMMIT, "partitions": ()},
            "does not list the partition",
        ),
        ({"partitions": ()}, "does not list the partition"),
        ({"partitions": (("txn", 0), ("gone", 3))}, "gone-3 is not here"),
        ({"partitions": (("txn", 0), ("plain", 0))}, "kafka/plain-0: its data is not there"),
    ],
)
def test_what_its_coordinator_has_is_another_thing(
    fields: dict[str, Any], words: str, kafka: Path, eoctl: Callable
) -> None:
    replace_state(kafka, "open-1", **fields)
    require_refused(eoctl, words)


def test_data_that_was_ended_or_lost_is_refused(kafka: Path, eoctl: Callable) -> None:
    aborted = ("txn", "abort", "kafka/txn-0", "--producer-id", 40, "--force-overdue", *NOW)
    assert eoctl(*aborted, "--apply").status == 0
    require_refused(eoctl, "kafka/txn-0: its data there was aborted already")
    assert eoctl("undo", journal_of(kafka)).status == 0
    cut = ("truncate", "kafka/txn-0", "--to-offset", 311, "--single-copy", *NOW)
    assert eoctl(*cut, "--apply").status == 0
    require_refused(eoctl, "kafka/txn-0: its data is not there")


def test_data_of_another_epoch_or_with_a_hole_is_refused(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        monkeypatch.context() as patch,
        session(kafka, "sink", version=2, timeout_ms=600_000) as begun,
    ):
        patch.setattr("storage.producers.producer_state._check_sequence", lambda *_: None)
        begun.send("txn", 1, b"one", b"two")
        begun.send("txn", 1, b"four", base_sequence=3)
        producer = begun.transactional.producer
    call = (
        *("txn", "commit", "kafka", "--transactional-id", "sink"),
        *("--producer-id", producer.producer_id, "--producer-epoch", producer.producer_epoch),
    )
    require_refused(eoctl, "a part of its data, from offset", call=call)


@pytest.mark.parametrize(("sequence", "is_refused"), [(2, False), (7, True)])
def test_data_without_its_first_batches_is_refused(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch, sequence: int, is_refused: bool
) -> None:
    """With version 1 sequences go on from one transaction to the next."""
    with (
        monkeypatch.context() as patch,
        session(kafka, "sink", version=0, timeout_ms=600_000) as begun,
    ):
        patch.setattr("storage.producers.producer_state._check_sequence", lambda *_: None)
        begun.send("txn", 1, b"one", b"two")
        begun.transactional.end(is_commit=True)
        begun.send("txn", 1, b"three", base_sequence=sequence)
        producer = begun.transactional.producer
    call = (
        *("txn", "commit", "kafka", "--transactional-id", "sink"),
        *("--producer-id", producer.producer_id, "--producer-epoch", producer.producer_epoch),
    )
    if is_refused:
        require_refused(eoctl, "a part of its data, from offset", call=call)
    else:
        assert eoctl(*call).status == 0


def test_a_log_that_lacks_its_end_is_refused(killed: Path, eoctl: Callable) -> None:
    """What was acknowledged is not there; or the last batch is not whole."""
    killed.rename(killed.parent / "kafka")
    log = killed.parent / "kafka/txn-0/00000000000000000000.log"
    data = log.read_bytes()
    log.write_bytes(data[:-3])
    require_refused(eoctl, "bytes at its end are not whole", "--strategy as-broker")
    log.write_bytes(data)
    path = killed.parent / "kafka/replication-offset-checkpoint"
    times = path.stat()
    path.write_text(re.sub(r"(?m)^txn 0 \d+$", "txn 0 400", path.read_text()))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    require_refused(eoctl, "data of the transaction may have been there")


def test_a_coordinator_that_ran_on_may_have_aborted_it(kafka: Path, eoctl: Callable) -> None:
    late_s = 1_795_229_940 + 600 + 301
    for path in kafka.glob("*-checkpoint"):
        os.utime(path, (late_s, late_s))
    require_refused(eoctl, "its time was over 5 min before its coordinator last ran")
    assert eoctl(*COMMIT, "--force-overdue").status == 0
    replace_state(kafka, "open-1", timeout_ms=2**31 - 1)  # its producer alone ends it
    assert eoctl(*COMMIT).status == 0


def test_all_that_stands_in_the_way_is_told_at_once(kafka: Path, eoctl: Callable) -> None:
    (kafka.parent / "decided").write_text("open-1,40,3\nopen-2,77,0\nnobody,1,0\n")
    call = ("txn", "commit", "kafka", "--from-file", "decided", *NOW)
    require_refused(eoctl, "open-1: producer", "open-2: producer", "nobody: its", call=call)


def test_the_call_that_is_told_has_all_that_is_missing(two_nodes: Path, eoctl: Callable) -> None:
    """It is the call that was given with all of it at once, and works when it is pasted."""
    late_s = 1_795_229_940 + 600 + 301
    for path in Path("kafka").glob("*-checkpoint"):
        os.utime(path, (late_s, late_s))
    shutil.rmtree(two_nodes)
    refused = require_refused(eoctl, "its time was over", "replication factor is unknown")
    assert refused.errors.count("if ") == 1
    call = refused.errors.split("replica will be kept: ")[1].strip()
    given = shlex.join(map(str, COMMIT))
    assert call == f"eoctl {given} --apply --force-overdue --single-copy"
    done = eoctl(*shlex.split(call)[1:])
    assert done.status == 0, done.errors


def test_what_is_alike_is_told_once(kafka: Path, eoctl: Callable) -> None:
    """And more than can be told is counted."""
    lines = [f"nobody-{n},{n},0\n" for n in range(1_000)]
    (kafka.parent / "decided").write_text("".join([*lines, "open-1,41,0\n"]))
    call = ("txn", "commit", "kafka", "--from-file", "decided", *NOW)
    refused = require_refused(eoctl, "nobody-4: its", "and 995 more; open-1: producer", call=call)
    assert len(refused.errors) < 1500
    assert "eoctl txn describe --transactional-id open-1 kafka shows" in refused.errors


def test_the_values_of_a_decision_are_asked_for_in_the_call(kafka: Path, eoctl: Callable) -> None:
    outcome = eoctl("txn", "commit", "kafka", *OPEN_1[:2], "--apply")
    call = "eoctl txn commit kafka --transactional-id open-1 --apply --producer-id N"
    assert f"try: {call} --producer-epoch N, with what the checkpoint has" in outcome.errors


def test_who_looks_at_it_is_told_how_to_commit_it(kafka: Path, eoctl: Callable) -> None:
    """Where it is open and its coordinator may commit it, and the call works; else it is not told."""
    reported = "commit it with the ids from there: "
    for call in (("hanging", "kafka"), ("describe", "--transactional-id", "open-1", "kafka")):
        for status in (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT):
            replace_state(kafka, "open-1", transaction_status=status)
            found = eoctl("txn", *call, "--topic", "txn").errors
            [line] = [each for each in found.splitlines() if reported in each]
            done = eoctl(*shlex.split(line.split(reported)[1])[1:], *NOW)
            assert done.status == 0, done.errors
    replace_state(kafka, "open-1", transaction_status=TransactionStatus.PREPARE_ABORT)
    assert reported not in eoctl("txn", *call).errors


def test_an_aborted_transaction_gets_no_command_that_commits_it(
    kafka: Path, eoctl: Callable
) -> None:
    """The coordinator has it as Ongoing, and its partition has the ABORT marker."""
    call = ("txn", "abort", "kafka/txn-0", "--producer-id", "40", "--force-overdue", "--apply")
    assert eoctl(*call).status == 0
    for name, is_aborted in (("open-1", True), ("open-2", False)):
        notes = eoctl("txn", "describe", "--transactional-id", name, "kafka").errors
        assert ("eoctl txn commit" in notes) is not is_aborted
        assert ("txn-0 has its ABORT marker" in notes) is is_aborted


# --- replicas -------------------------------------------------------------------------------------


@pytest.fixture
def two_nodes(kafka: Path) -> Path:
    """Two replicas; no metadata says how many there are."""
    shutil.move(kafka / "__cluster_metadata-0", kafka.parent / "metadata")
    other = kafka.parent / "other"
    shutil.copytree(kafka, other)
    meta = other / "meta.properties"
    meta.write_text(re.sub(r"node\.id=\d+", "node.id=2", meta.read_text()))
    return other


def test_all_replicas_get_the_same(two_nodes: Path, eoctl: Callable) -> None:
    nodes = [two_nodes.parent / each for each in ("kafka", "other")]
    before = [tree_of(each) for each in nodes]
    alone = require_refused(eoctl, "replication factor is unknown")
    assert "--single-copy" in alone.errors
    call = ("txn", "commit", "kafka", "other", *OPEN_1, *NOW)
    outcome = eoctl(*call, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert [each["path"] for each in rows_of(outcome, "marker")] == ["kafka/txn-0", "other/txn-0"]
    (price,) = rows_of(outcome, "price")
    assert price["committed_records_count"] == 7
    number = rows_of(outcome, "commit")[0]["coordinator_partition"]
    for name in ("txn-0", f"__transaction_state-{number}"):
        ours, theirs = (
            {each.name: each.read_bytes() for each in (node / name).iterdir()} for node in nodes
        )
        assert ours == theirs
    assert eoctl("undo", journal_of(nodes[0])).status == 0
    assert [tree_of(each) for each in nodes] == before


def test_replicas_that_differ_are_refused(two_nodes: Path, eoctl: Callable) -> None:
    with session(two_nodes, "more", version=0, timeout_ms=600_000) as begun:
        begun.send("txn", 0, b"only here")
    call = ("txn", "commit", "kafka", "other", *OPEN_1, *NOW)
    require_refused(eoctl, "ends differently", "eoctl replicas compare kafka/txn-0", call=call)
    shutil.rmtree(two_nodes / "txn-0")
    require_refused(eoctl, "replication factor is unknown", call=call)


def test_two_clusters_are_refused(two_nodes: Path, eoctl: Callable) -> None:
    meta = two_nodes / "meta.properties"
    meta.write_text(re.sub(r"cluster\.id=\S+", "cluster.id=another", meta.read_text()))
    outcome = eoctl("txn", "commit", "kafka", "other", *OPEN_1, *NOW)
    assert outcome.status == 2
    assert "of several clusters" in outcome.errors


@pytest.mark.exhaustive
def test_in_80_columns_and_in_a_closed_pipe(kafka: Path) -> None:
    text = in_80_columns(*COMMIT)
    assert "commit 1 transaction: 1 COMMIT marker" in text
    assert in_a_closed_pipe(*COMMIT).returncode == 0
