"""`eoctl serve` where `__consumer_offsets` or `__transaction_state` is damaged, or a part is not here.

A client that was told of no offset would begin elsewhere, and nobody would notice; a transaction of
an id that is not found counts as hanging. Both are errors, unless damage is to be passed over.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from eoctl.commands.serve import ServeOptions, open_catalogue
from eoctl.serve.connection import answer
from eoctl.serve.state.broker import Client, VirtualBroker
from eoctl.serve.state.catalogue import ServeRules
from eoctl.serve.state.members import Members
from storage.dirs.discovery import discover
from storage.producers.java_hash_map import coordinator_partition
from tests import wire
from tests.kafka.jars import java_command, quick_start
from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

DEADLINE_S = 60
NONE, UNKNOWN_SERVER_ERROR, NOT_FOUND, NO_SUCH_ID, UNKNOWN_TOPIC = 0, -1, 69, 105, 3
PARTITIONS = 4  # of each of the internal topics there
CLIENT = Client(name="", address="", host="", port=0)
BROKEN_GROUP, BROKEN_NUMBER = "plain-group", 0
SOUND_GROUP = "ctp"
BROKEN_ID, BROKEN_ID_NUMBER = "open-1", 2
SOUND_ID = "open-2"


def flip(place: Path) -> None:
    """Damage the first batch, which groups and ids had something in."""
    log = place / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 0x55
    log.write_bytes(data)


def empty(place: Path) -> None:
    """Every file in it is gone."""
    for each in place.iterdir():
        each.unlink()


def be_elsewhere(place: Path) -> None:
    """As on a disk that nobody has."""
    shutil.rmtree(place)


BREAKING = [flip, empty, be_elsewhere]


def named(number: int) -> str:
    """A name that nobody has, of a partition."""
    names = (f"new-{each}" for each in itertools.count())
    return next(each for each in names if coordinator_partition(each, PARTITIONS) == number)


class Asked:
    """Directories that are served within this process."""

    def __init__(self, *log_dirs: Path, skips: bool = False) -> None:
        options = ServeOptions(ServeRules(skips_damage=skips))
        self.reported: list[str] = []
        self.catalogue = open_catalogue(discover([*map(str, log_dirs)]), options)
        self.catalogue.report = self.reported.append
        self._members = Members()

    def ask(self, name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        api = wire.api_named(name)
        request = wire.encoded(api, version, body)
        with ThreadPoolExecutor(1) as executor:
            broker = VirtualBroker(self.catalogue, self._members, executor)
            found, _ = asyncio.run(answer(broker, request, CLIENT, lambda: False))
        assert found is not None
        return wire.decoded(api, version, bytes(found.data))

    def offset(self, group: str, version: int) -> tuple[int, int | None]:
        """Error and committed offset of plain-1, or None without an answer about it."""
        topics: list[dict[str, Any]] = [{"name": "plain", "partitionIndexes": [1]}]
        if version < 8:
            found = self.ask("OffsetFetch", version, {"groupId": group, "topics": topics})
        else:
            asked = {"groupId": group, "topics": topics}
            (found,) = self.ask("OffsetFetch", version, {"groups": [asked]})["groups"]
        partitions = [each for topic in found["topics"] for each in topic["partitions"]]
        codes = {found.get("errorCode", 0), *(each["errorCode"] for each in partitions)}
        (code,) = codes - {NONE} or {NONE}
        return code, partitions[0]["committedOffset"] if partitions else None

    def described(self, group: str) -> int:
        (found,) = self.ask("DescribeGroups", 6, {"groups": [group]})["groups"]
        (newer,) = self.ask("ConsumerGroupDescribe", 0, {"groupIds": [group]})["groups"]
        assert newer["errorCode"] in (NOT_FOUND, found["errorCode"])
        code: int = found["errorCode"]
        return code

    def transaction(self, name: str) -> int:
        (found,) = self.ask("DescribeTransactions", 0, {"transactionalIds": [name]})[
            "transactionStates"
        ]
        code: int = found["errorCode"]
        return code


@pytest.mark.parametrize("break_it", BREAKING)
def test_what_is_not_known_of_groups_is_an_error(
    kafka: Path, break_it: Callable[[Path], None]
) -> None:
    """Others are answered; a group that is in none of the logs may have been in what is lost."""
    assert Asked(kafka).offset(BROKEN_GROUP, 7) == (NONE, 200)
    break_it(kafka / f"__consumer_offsets-{BROKEN_NUMBER}")
    asked = Asked(kafka)
    for version in (2, 5, 7, 8, 9):
        for group in (BROKEN_GROUP, named(BROKEN_NUMBER)):
            assert asked.offset(group, version) == (UNKNOWN_SERVER_ERROR, None)
        assert asked.offset(SOUND_GROUP, version) == (NONE, -1)
        assert asked.offset(named(1), version) == (NONE, -1)
    assert asked.offset(BROKEN_GROUP, 1) == (UNKNOWN_SERVER_ERROR, -1)
    assert asked.described(BROKEN_GROUP) == UNKNOWN_SERVER_ERROR
    assert asked.described(named(BROKEN_NUMBER)) == UNKNOWN_SERVER_ERROR
    assert asked.described(SOUND_GROUP) == NONE
    assert asked.described(named(1)) == NOT_FOUND
    assert asked.ask("ListGroups", 4, {})["errorCode"] == UNKNOWN_SERVER_ERROR
    assert asked.catalogue.is_lacking
    assert any(
        f"group '{BROKEN_GROUP}': " in each and "--on-damage" in each for each in asked.reported
    )
    everything = {"groupId": BROKEN_GROUP, "topics": None}
    assert asked.ask("OffsetFetch", 7, everything)["errorCode"] == UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("break_it", BREAKING)
def test_past_damage_groups_are_what_is_left(kafka: Path, break_it: Callable[[Path], None]) -> None:
    break_it(kafka / f"__consumer_offsets-{BROKEN_NUMBER}")
    asked = Asked(kafka, skips=True)
    assert asked.offset(BROKEN_GROUP, 7)[0] == NONE
    assert asked.described(SOUND_GROUP) == NONE
    groups = asked.ask("ListGroups", 4, {})
    assert groups["errorCode"] == NONE
    assert SOUND_GROUP in {each["groupId"] for each in groups["groups"]}
    assert asked.catalogue.is_lacking
    assert any(f"group '{BROKEN_GROUP}': " in each for each in asked.reported)


def test_what_is_committed_here_is_known_all_the_same(kafka: Path) -> None:
    flip(kafka / f"__consumer_offsets-{BROKEN_NUMBER}")
    asked = Asked(kafka)
    partitions = [{"partitionIndex": 1, "committedOffset": 7, "committedMetadata": ""}]
    topics = [{"name": "plain", "partitions": partitions}]
    body = {
        "groupId": BROKEN_GROUP, "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics
    }  # fmt: skip
    answered = asked.ask("OffsetCommit", 8, body)
    assert answered["topics"][0]["partitions"][0]["errorCode"] == NONE
    assert asked.offset(BROKEN_GROUP, 7) == (NONE, 7)
    other = {"groupId": BROKEN_GROUP, "topics": [{"name": "plain", "partitionIndexes": [0, 1]}]}
    assert asked.ask("OffsetFetch", 7, other)["errorCode"] == UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("break_it", BREAKING)
def test_what_is_not_known_of_transactions_is_an_error(
    kafka: Path, break_it: Callable[[Path], None]
) -> None:
    """Else kafka-transactions.sh find-hanging would have what is only not known be aborted."""
    break_it(kafka / f"__transaction_state-{BROKEN_ID_NUMBER}")
    asked = Asked(kafka)
    for name in (BROKEN_ID, named(BROKEN_ID_NUMBER)):
        assert asked.transaction(name) == UNKNOWN_SERVER_ERROR
    assert asked.transaction(SOUND_ID) == NONE
    assert asked.transaction(named(1)) == NO_SUCH_ID
    assert asked.ask("ListTransactions", 1, {})["errorCode"] == UNKNOWN_SERVER_ERROR
    assert asked.catalogue.is_lacking
    assert any(f"id '{BROKEN_ID}': " in each and "--on-damage" in each for each in asked.reported)
    past = Asked(kafka, skips=True)
    assert past.transaction(named(BROKEN_ID_NUMBER)) == NO_SUCH_ID
    found = past.ask("ListTransactions", 1, {})
    assert found["errorCode"] == NONE
    assert SOUND_ID in {each["transactionalId"] for each in found["transactionStates"]}
    assert past.catalogue.is_lacking


def test_without_the_topic_nobody_has_committed(kafka: Path, tmp_path: Path) -> None:
    """A partition directory alone says nothing of groups: whoever comes may begin."""
    alone = tmp_path / "alone"
    shutil.copytree(kafka / "plain-0", alone / "plain-0")
    asked = Asked(alone)
    assert asked.offset(BROKEN_GROUP, 7) == (NONE, -1)
    assert asked.transaction(BROKEN_ID) == NO_SUCH_ID
    assert asked.ask("ListGroups", 4, {})["errorCode"] == NONE
    assert asked.ask("ListTransactions", 0, {})["errorCode"] == NONE


def test_all_of_a_topic_elsewhere(kafka: Path) -> None:
    """Groups begin anew, which people are told; that no transaction is known is not an answer."""
    for number in range(PARTITIONS):
        be_elsewhere(kafka / f"__consumer_offsets-{number}")
        be_elsewhere(kafka / f"__transaction_state-{number}")
    asked = Asked(kafka)
    assert asked.offset(BROKEN_GROUP, 7) == (NONE, -1)
    assert asked.ask("ListGroups", 4, {})["errorCode"] == NONE
    assert [each for each in asked.reported if "no partition of __consumer_offsets is here" in each]
    assert not asked.catalogue.is_lacking
    assert asked.transaction(SOUND_ID) == UNKNOWN_SERVER_ERROR
    assert asked.ask("ListTransactions", 1, {})["errorCode"] == UNKNOWN_SERVER_ERROR
    assert asked.catalogue.is_lacking


def test_librdkafka_begins_nowhere(kafka: Path) -> None:
    """It is told of the error, and is given nothing in place of what its group had left."""
    flip(kafka / f"__consumer_offsets-{BROKEN_NUMBER}")
    with Served(kafka) as served:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": served.bootstrap, "group.id": BROKEN_GROUP,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
        }  # fmt: skip
        reader = Consumer(settings)
        with pytest.raises(KafkaException):
            reader.committed([TopicPartition("plain", 0)], timeout=DEADLINE_S)
        reader.subscribe(["plain"])
        found = reader.poll(DEADLINE_S)
        assert found is not None
        error = found.error()
        assert error is not None
        assert error.code() == UNKNOWN_SERVER_ERROR, error
        reader.close()
        ended = served.stop()
    assert f"group '{BROKEN_GROUP}': " in ended.stderr


@pytest.mark.broker
@pytest.mark.exhaustive
def test_the_console_consumer_begins_nowhere(kafka: Path) -> None:
    """It ends, with an error and without a record; without a group it reads, as it is told."""
    flip(kafka / f"__consumer_offsets-{BROKEN_NUMBER}")

    def read(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            java_command(
                *quick_start(), "org.apache.kafka.tools.consumer.ConsoleConsumer",
                "--bootstrap-server", served.bootstrap, "--topic", "plain",
                *arguments,
            ),
            capture_output=True, check=False, timeout=4 * DEADLINE_S,
        )  # fmt: skip

    with Served(kafka) as served:
        done = read("--group", BROKEN_GROUP, "--from-beginning")
        apart = read("--partition", "1", "--offset", "0", "--max-messages", "3")
        reported = served.stop().stderr
    assert done.stdout == b""
    assert b"Unexpected error in fetch offset response" in done.stderr, done.stderr
    assert b"Processed a total of 0 messages" in done.stderr
    assert len(apart.stdout.splitlines()) == 3, apart.stderr
    assert "with --partition and --offset, use no group" in reported


def test_coordinator_partitions_that_nobody_wrote_are_empty(tmp_path: Path, eoctl: Eoctl) -> None:
    made = eoctl("init", tmp_path / "new", "--topic", "orders:1", "--apply")
    assert made.status == 0, made.errors
    asked = Asked(tmp_path / "new")
    assert asked.offset(BROKEN_GROUP, 7) == (NONE, -1)
    assert asked.described(BROKEN_GROUP) == NOT_FOUND
    assert asked.transaction(BROKEN_ID) == NO_SUCH_ID
    assert asked.ask("ListGroups", 4, {})["errorCode"] == NONE
    assert asked.ask("ListTransactions", 1, {})["errorCode"] == NONE
    assert not asked.catalogue.is_lacking
    for topic in ("__consumer_offsets", "__transaction_state"):
        for place in (tmp_path / "new").glob(f"{topic}-*"):
            (place / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    written = Asked(tmp_path / "new")
    assert written.offset(BROKEN_GROUP, 7) == (UNKNOWN_SERVER_ERROR, None)
    assert written.transaction(BROKEN_ID) == UNKNOWN_SERVER_ERROR


def test_the_quorum_is_that_of_the_metadata(kafka: Path) -> None:
    topics = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
    asked = Asked(kafka)
    image = asked.catalogue.image
    assert image is not None
    for version in (0, 1, 2):
        found = asked.ask("DescribeQuorum", version, {"topics": topics})
        assert found["errorCode"] == NONE
        ((partition,),) = [each["partitions"] for each in found["topics"]]
        (voter,) = partition["currentVoters"]
        assert (partition["leaderId"], voter["replicaId"]) == (1, 1)
        assert partition["leaderEpoch"] > 0
        assert partition["highWatermark"] == voter["logEndOffset"] == image.end_offset
        assert partition["observers"] == []
    assert [each["nodeId"] for each in found["nodes"]] == [1]
    topics[0]["topicName"] = "plain"
    found = asked.ask("DescribeQuorum", 2, {"topics": topics})
    assert found["topics"][0]["partitions"][0]["errorCode"] == UNKNOWN_TOPIC
    shutil.rmtree(kafka / "__cluster_metadata-0")
    topics[0]["topicName"] = "__cluster_metadata"
    found = Asked(kafka).ask("DescribeQuorum", 2, {"topics": topics})
    assert found["errorCode"] == UNKNOWN_SERVER_ERROR
    assert "no __cluster_metadata-0" in found["errorMessage"]
