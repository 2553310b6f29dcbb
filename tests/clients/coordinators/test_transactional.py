"""A transactional id in a log dir whose `__transaction_state` is odd, damaged, or was left by a crash."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from recovery.cluster.clusters import image_around
from recovery.cluster.coordinator_log import CoordinatorLog
from storage.dirs.log_dir import read_log_dir
from storage.errors import RefusedError
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import TransactionStatus, encode_key, encode_value
from storage.producers.transaction_metadata import CoordinatorError
from tests.coordinator_cases import state_of
from tests.hanging import append_record, newest_state
from tests.read_log import read_log
from tests.transactional import open_partitions, session
from tests.writing import TOPIC_ID, content, make_log_dir, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.formats.transaction_state import TransactionState

COUNT = 3  # of the partitions of `__transaction_state`
NOW_MS = 1_800_000_000_000
HOME = 1  # "a" belongs there: its hash is 97


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """With partitions t-0 and t-1, and the coordinator's."""
    made = make_log_dir(tmp_path / "log-dir")
    partitions = open_partitions(made)
    partitions.create_topic(TRANSACTION_STATE_TOPIC, COUNT)
    assert partitions.close() is None
    for number in range(2):
        add_partition(made, "t", number)
    return made


def add_partition(log_dir: Path, topic: str, number: int) -> None:
    directory = log_dir / f"{topic}-{number}"
    directory.mkdir()
    writer = open_writer(directory)
    writer.store.topic_id = TOPIC_ID
    writer.store.begin()
    writer.close()


def put(
    log_dir: Path, value: bytes | None, *, key: bytes | None = None, number: int = HOME
) -> None:
    """Append a record to a partition of the coordinator."""
    directory = log_dir / f"{TRANSACTION_STATE_TOPIC}-{number}"
    append_record(directory, encode_key("a") if key is None else key, value, NOW_MS)


def state(
    status: TransactionStatus, epoch: int = 7, *partitions: tuple[str, int], value_version: int = 1
) -> TransactionState:
    version = 2 if value_version else 0
    made = state_of(status, epoch, version, value_version=value_version)
    return made._replace(partitions=partitions) if partitions else made


def go_on(log_dir: Path) -> tuple[tuple[int, int], list[str]]:
    """Commit one transaction as the newest producer of the id; who it was, and what was told."""
    with session(log_dir, "a") as begun:
        producer = tuple(begun.transactional.producer)
        begun.send("t", 0, b"x")
        begun.transactional.end(is_commit=True)
        notes = begun.transactional.notes
    assert newest_state(log_dir, "a")[1].status is TransactionStatus.COMPLETE_COMMIT
    return producer, notes


def values(log_dir: Path, number: int) -> list[bytes | None]:
    """What a read_committed consumer gets."""
    return [each.value for each in read_log(log_dir / f"t-{number}").committed]


def test_records_of_both_versions(log_dir: Path) -> None:
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 3)))
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 5, value_version=0)))
    assert go_on(log_dir) == ((500, 6), [])
    newest = newest_state(log_dir, "a")[1]
    assert (newest.version, newest.producer_epoch) == (1, 7)
    assert values(log_dir, 0) == [b"x"]


def test_a_tombstone_forgets(log_dir: Path) -> None:
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 3)))
    put(log_dir, None)
    producer, notes = go_on(log_dir)
    assert (producer[1], notes) == (0, [])
    assert producer[0] != 500


def test_what_is_no_record_of_an_id_is_left_alone(log_dir: Path) -> None:
    """As a broker does, which tells it in its log."""
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 3)))
    put(log_dir, b"?", key=b"\0\7later")
    producer, notes = go_on(log_dir)
    assert producer == (500, 4)
    (note,) = notes
    assert note.startswith("1 record(s) of __transaction_state have an unknown type")


@pytest.mark.parametrize(
    "value",
    [b"\0\2later", b"\0\1" + b"\xff" * 9, b"\0", b""],
    ids=["later", "torn", "short", "empty"],
)
def test_a_record_of_an_id_that_cannot_be_read(log_dir: Path, value: bytes) -> None:
    """Nothing is known of the id then, so nothing is given out. A broker skips a later version."""
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 3)))
    put(log_dir, value)
    before = content(log_dir / f"{TRANSACTION_STATE_TOPIC}-{HOME}")
    with (
        pytest.raises(RefusedError, match="the coordinator's log cannot be read whole"),
        session(log_dir, "a"),
    ):
        pass
    assert content(log_dir / f"{TRANSACTION_STATE_TOPIC}-{HOME}") == before


def test_an_unknown_status(log_dir: Path) -> None:
    put(log_dir, encode_value(state(TransactionStatus.EMPTY)._replace(transaction_status=9)))
    with pytest.raises(RefusedError, match="COO-4"), session(log_dir, "a"):
        pass


def test_a_record_in_the_partition_of_another_id(log_dir: Path) -> None:
    """Without the cluster's metadata it may be the number of partitions that is another one."""
    put(log_dir, encode_value(state(TransactionStatus.PREPARE_COMMIT, 30)), number=HOME - 1)
    with (
        pytest.raises(
            RefusedError, match=r"a record of a is in __transaction_state-0.*belongs to 1"
        ),
        session(log_dir, "a"),
    ):
        pass


def test_a_misplaced_record_is_no_newer_one(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """No coordinator of the id would look there; partitions are read in their order."""
    log_dir = tmp_path / "log-dir"
    shutil.copytree(golden("kafka-4.3.1") / "clean", log_dir)
    for path in (log_dir, *log_dir.rglob("*")):
        path.chmod(0o700)
    image = image_around(read_log_dir(log_dir), None)
    before = CoordinatorLog([read_log_dir(log_dir)], image)
    assert before.ids["tx-2"].partition == 1
    directory = log_dir / f"{TRANSACTION_STATE_TOPIC}-3"
    misplaced = encode_value(state(TransactionStatus.PREPARE_COMMIT, 30))
    append_record(directory, encode_key("tx-2"), misplaced, NOW_MS)
    after = CoordinatorLog([read_log_dir(log_dir)], image)
    assert after.ids["tx-2"] == before.ids["tx-2"]
    assert after.misplaced_count == 1


@pytest.mark.parametrize("version", [0, 1])
def test_a_prepared_transaction_whose_partition_is_not_here(log_dir: Path, version: int) -> None:
    """It stays, is told, and keeps the other ids going; its partition is not made."""
    status = TransactionStatus.PREPARE_COMMIT
    made = state(status, 7, ("t", 1), ("gone", 4), value_version=version)
    put(log_dir, encode_value(made), key=encode_key("d"))  # the same partition: 100
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 3)))
    producer, notes = go_on(log_dir)
    assert producer[1] == 4
    assert notes == ["d: is PrepareCommit, and stays so: gone-4 is not here"]
    assert not (log_dir / "gone-4").exists()
    assert newest_state(log_dir, "d")[1].status is status
    with pytest.raises(CoordinatorError, match="CONCURRENT_TRANSACTIONS"), session(log_dir, "d"):
        pass
    add_partition(log_dir, "gone", 4)
    assert go_on(log_dir)[1] == []
    assert newest_state(log_dir, "d")[1].status is TransactionStatus.COMPLETE_COMMIT


@pytest.mark.share(3)
@pytest.mark.parametrize("cut_bytes", [0, 1, 30, 70])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_torn_end_of_a_crash(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, cut_bytes: int, is_commit: bool
) -> None:
    """With the record whole it decides; without it the transaction is aborted by the next one."""
    with session(log_dir, "a", is_closed=False) as begun:
        begun.send("t", 0, b"one")
        begun.send("t", 1, b"two")
        begun.prepare(monkeypatch, is_commit=is_commit)
    home = log_dir / f"{TRANSACTION_STATE_TOPIC}-{HOME}"
    (log,) = home.glob("*.log")
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - cut_bytes])
    for each in ("cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert not (log_dir / each).exists()
    _, notes = go_on(log_dir)
    is_whole = is_commit and not cut_bytes
    assert values(log_dir, 0) == ([b"one", b"x"] if is_whole else [b"x"])
    assert values(log_dir, 1) == ([b"two"] if is_whole else [])
    is_fenced = any("CONCURRENT_TRANSACTIONS" in each for each in notes)
    assert is_fenced is bool(cut_bytes)


def test_without_its_own_partition(log_dir: Path) -> None:
    """What is lost with it says who is fenced; a new one would take its place."""
    put(log_dir, encode_value(state(TransactionStatus.EMPTY, 3)))
    shutil.rmtree(log_dir / f"{TRANSACTION_STATE_TOPIC}-{HOME}")
    with (
        pytest.raises(RefusedError, match=f"{TRANSACTION_STATE_TOPIC}-{HOME}"),
        session(log_dir, "a"),
    ):
        pass
    assert not (log_dir / f"{TRANSACTION_STATE_TOPIC}-{HOME}").exists()
