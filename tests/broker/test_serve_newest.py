"""`eoctl serve` beside a real broker of 4.4.0 over directories of that release, and its tools."""

from __future__ import annotations

import re
import subprocess
import time
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.test_serve_oracle import every_question, require_equal
from tests.kafka.broker import KEPT, copy_log_dir
from tests.kafka.capture.newest import DynamicBroker
from tests.kafka.jars import java_command
from tests.serve_questions import learn, questions
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.serve_questions import Question

    Golden = Callable[[str], Path]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("jars_of_4_4"),
]
HOUR_MS = "3600000"
DEADLINE_S = 60
QUIET = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
SETTINGS = {
    **KEPT,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # The killed members of groups stay.
    **{
        f"group.{kind}.{name}": HOUR_MS
        for kind in ("consumer", "share", "streams")
        for name in ("session.timeout.ms", "max.session.timeout.ms")
    },
}
SHARED, CONSUMED, STREAMED = "shared", "consumed", "streamed"
# What no other question covers, with answers that do not change by themselves.
ASKED = {
    "DescribeAcls", "DescribeUserScramCredentials", "DescribeConfigs", "ListGroups",
    "DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
}  # fmt: skip
QUORUM = {"topics": [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]}
TOOLS = (
    ("GroupsCommand", "--list"),
    *(
        ("consumer.group.ShareGroupCommand", "--describe", "--all-groups", *each)
        for each in (("--state", "--verbose"), ("--members", "--verbose"), ("--offsets",))
    ),
    *(
        ("streams.StreamsGroupCommand", "--describe", "--all-groups", *each)
        for each in (("--state", "--verbose"), ("--members", "--verbose"), ("--offsets",))
    ),
    ("consumer.group.ConsumerGroupCommand", "--describe", "--all-groups", "--members"),
    ("AclCommand", "--list"),
    ("AclCommand", "--list", "--topic", "orders-1", "--resource-pattern-type", "match"),
    ("ConfigCommand", "--describe", "--entity-type", "users"),
    ("ConfigCommand", "--describe", "--entity-type", "groups", "--entity-name", "rejecting", "--all"),
    ("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "dlq.rejected", "--all"),
    ("FeatureCommand", "describe"),
)  # fmt: skip


def dead(golden: Golden, state: str, tmp_path: Path) -> list[Path]:
    """A copy that a broker may change."""
    return [
        copy_log_dir(golden("kafka-4.4.0") / state / each, tmp_path / each)
        for each in ("one", "two")
    ]


@pytest.mark.parametrize("state", ["killed", "clean"])
def test_beside_a_broker(golden: Golden, tmp_path: Path, state: str) -> None:
    """Both have the same files before them at the same time."""
    log_dirs = dead(golden, state, tmp_path)
    with DynamicBroker(log_dirs, overrides=SETTINGS) as broker:
        asked, answers = every_question(broker)
        with Served(*log_dirs, "--internal") as served:
            require_equal(asked, answers, served)
        broker.kill()


def test_members_rights_and_tools(golden: Golden, tmp_path: Path) -> None:
    """Groups with members of each kind, ACLs and users, as a broker that loads them answers."""
    log_dirs = dead(golden, "killed", tmp_path)
    broker = DynamicBroker(log_dirs, overrides=SETTINGS)
    try:
        broker.start()
        write(broker.bootstrap)
        broker.kill()
        broker.start()
        with Wire(broker.bootstrap) as theirs:
            asked = [each for each in questions(learn(theirs)) if each.api in ASKED]
            answers = [theirs.ask(*each) for each in asked]
            require_members(asked, answers)
            quorum = [theirs.ask("DescribeQuorum", each, QUORUM) for each in range(3)]
        with Served(*log_dirs, "--internal") as served:
            require_equal(asked, answers, served)
            with Wire(served.bootstrap) as ours:
                for version, their in enumerate(quorum):
                    require_quorum(their, ours.ask("DescribeQuorum", version, QUORUM))
            different = {
                call: found
                for call in TOOLS
                if (found := compared(broker.bootstrap, served.bootstrap, call))
            }
            assert not different, different
    finally:
        broker.close()


def write(bootstrap: str) -> None:
    """Let members join groups, and set all that an administrator can set about security."""
    with Wire(bootstrap) as wire:
        acls = (
            (2, "orders-", 4, "User:alice", "*", 4, 3), (2, "orders-1", 3, "User:bob", "*", 3, 2),
            (2, "*", 3, "User:carol", "10.1.2.3", 8, 3), (3, "group", 3, "User:alice", "*", 3, 3),
            (4, "kafka-cluster", 3, "User:*", "*", 5, 3), (5, "id", 4, "User:alice", "*", 4, 3),
            (7, "alice", 3, "User:bob", "*", 13, 3),
        )  # fmt: skip
        names = (
            "resourceType", "resourceName", "resourcePatternType", "principal", "host", "operation",
            "permissionType",
        )  # fmt: skip
        creations = [dict(zip(names, each, strict=True)) for each in acls]
        made = wire.ask("CreateAcls", 3, {"creations": creations})["results"]
        users: list[dict[str, Any]] = [
            {"name": name, "mechanism": mechanism, "iterations": count}
            for name, mechanism, count in (
                ("alice", 2, 5000),
                ("bob", 1, 8192),
                ("nobody", 1, 4096),
            )
        ]
        made += wire.ask("AlterUserScramCredentials", 0, {"deletions": [], "upsertions": [
            {**each, "salt": b"salt", "saltedPassword": b"x" * 32} for each in users
        ]})["results"]  # fmt: skip
        removed = {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}
        made += wire.ask("AlterUserScramCredentials", 0, removed)["results"]
        settings = {
            STREAMED: {"streams.num.standby.replicas": "1", "streams.assignor.name": "sticky",
                       "streams.num.warmup.replicas": "1"},
            SHARED: {"share.isolation.level": "read_committed"},
        }  # fmt: skip
        made += wire.ask("IncrementalAlterConfigs", 1, {"resources": [
            {"resourceType": 32, "resourceName": group, "configs": [
                {"name": name, "configOperation": 0, "value": value}
                for name, value in values.items()
            ]}
            for group, values in settings.items()
        ]})["responses"]  # fmt: skip
        assert not [each for each in made if each["errorCode"]], made
    consume(bootstrap)
    share(bootstrap)
    stream(bootstrap)


def beat(bootstrap: str, api: str, body: dict[str, Any], *, field: str) -> dict[str, Any]:
    """Send a heartbeat until its answer has a value in a field, and return the answer."""
    deadline_s = time.monotonic() + DEADLINE_S
    with Wire(bootstrap) as wire:
        while True:
            found = wire.ask(api, 1, body)
            assert time.monotonic() < deadline_s, (body, found)
            if found["errorCode"] == 0 and found[field]:
                return found
            if found["errorCode"] == 0:  # the next one says nothing new
                body = {
                    name: body[name] for name in ("groupId", "memberId", "endpointInformationEpoch")
                    if name in body
                } | {"memberEpoch": found["memberEpoch"]}  # fmt: skip
            time.sleep(0.3)


def consume(bootstrap: str) -> None:
    """One member that has all, then another: the first must give one partition back."""

    def member(number: int, epoch: int, **more: Any) -> dict[str, Any]:
        return {"groupId": CONSUMED, "memberId": f"member-{number}", "memberEpoch": epoch, **more}

    joins = {
        "rebalanceTimeoutMs": 300_000, "subscribedTopicNames": ["plain"], "topicPartitions": [],
        "serverAssignor": "range", "rackId": "a-rack",
    }  # fmt: skip
    api = "ConsumerGroupHeartbeat"
    first = beat(bootstrap, api, member(1, 0, instanceId="static", **joins), field="assignment")
    owned = [
        {"topicId": each["topicId"], "partitions": each["partitions"]}
        for each in first["assignment"]["topicPartitions"]
    ]
    with Wire(bootstrap) as wire:
        wire.ask(api, 1, member(1, first["memberEpoch"], topicPartitions=owned))
        wire.ask(api, 1, member(2, 0, **joins))
    revoked = beat(bootstrap, api, member(1, first["memberEpoch"]), field="assignment")
    (kept,) = revoked["assignment"]["topicPartitions"]
    assert len(kept["partitions"]) == 1


def share(bootstrap: str) -> None:
    """Two members, to which partitions are assigned."""
    for number in (1, 2):
        body = {
            "groupId": SHARED, "memberId": f"member-{number}", "memberEpoch": 0, "rackId": "r",
            "subscribedTopicNames": ["plain", "txn"],
        }  # fmt: skip
        beat(bootstrap, "ShareGroupHeartbeat", body, field="assignment")


def stream(bootstrap: str) -> None:
    """Two processes, with standby tasks."""
    changelog = {
        "name": "a-changelog", "partitions": 0, "replicationFactor": 1,
        "topicConfigs": [{"key": "cleanup.policy", "value": "compact"}],
    }  # fmt: skip
    topology = {"epoch": 0, "subtopologies": [
        {"subtopologyId": name, "sourceTopics": sources, "sourceTopicRegex": [],
         "stateChangelogTopics": [{**changelog, "name": f"{name}-changelog"}],
         "repartitionSinkTopics": [], "repartitionSourceTopics": [], "copartitionGroups": []}
        for name, sources in (("1", ["plain", "counted"]), ("0", ["plain"]))
    ]}  # fmt: skip
    for number in (1, 2):
        body = {
            "groupId": STREAMED, "memberId": f"member-{number}", "memberEpoch": 0,
            "endpointInformationEpoch": 0, "rebalanceTimeoutMs": 300_000, "topology": topology,
            "activeTasks": [], "standbyTasks": [], "warmupTasks": [], "processId": f"process-{number}",
            "userEndpoint": {"host": "localhost", "port": 60_000 + number},
            "clientTags": [{"key": "zone", "value": f"z{number}"}],
        }  # fmt: skip
        field = "activeTasks" if number == 1 else "memberEpoch"  # the first one gives nothing back
        beat(bootstrap, "StreamsGroupHeartbeat", body, field=field)
    described = {"groupIds": [STREAMED], "includeAuthorizedOperations": False}
    deadline_s = time.monotonic() + DEADLINE_S
    with Wire(bootstrap) as wire:
        while True:
            (group,) = wire.ask("StreamsGroupDescribe", 1, described)["groups"]
            if any(each["targetAssignment"]["standbyTasks"] for each in group["members"]):
                break
            assert time.monotonic() < deadline_s, group
            epochs = {each["memberId"]: each["memberEpoch"] for each in group["members"]}
            again = {
                name: body[name] for name in ("groupId", "memberId", "endpointInformationEpoch")
            }
            wire.ask("StreamsGroupHeartbeat", 1, {**again, "memberEpoch": epochs[body["memberId"]]})
            time.sleep(0.3)


def require_members(asked: list[Question], answers: list[dict[str, Any]]) -> None:
    """Require that the broker that has loaded the records has members of each kind."""
    by_api = {each.api: answer for each, answer in zip(asked, answers, strict=True)}
    for api, group in (("ConsumerGroupDescribe", CONSUMED), ("ShareGroupDescribe", SHARED),
                       ("StreamsGroupDescribe", STREAMED)):  # fmt: skip
        (found,) = [each for each in by_api[api]["groups"] if each["groupId"] == group]
        assert len(found["members"]) == 2, found
    assert any(each["targetAssignment"]["standbyTasks"] for each in found["members"]), found
    assert len(by_api["DescribeUserScramCredentials"]["results"]) == 1


def require_quorum(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Compare all but clocks, and offsets: a controller appends by itself."""
    their, our = (each["topics"][0]["partitions"][0] for each in (theirs, ours))
    assert our["highWatermark"] >= their["highWatermark"]
    for one, other in (
        (their, our),
        *zip(their["currentVoters"], our["currentVoters"], strict=True),
    ):
        for name, value in one.items():
            if (
                name not in {"errorMessage", "highWatermark", "currentVoters"}
                and "Time" not in name
            ):
                assert name == "logEndOffset" or other[name] == value, (name, value, other[name])
    assert theirs.get("nodes") == ours.get("nodes")


def compared(broker: str, served: str, call: tuple[str, ...]) -> list[str]:
    """The lines that a tool prints of one of both only."""
    theirs, ours = (printed(each, call) for each in (broker, served))
    # No file has a server.properties.
    stated = {line.partition("=")[0] for line in theirs if "STATIC_BROKER_CONFIG" in line}
    one, other = (
        sorted(
            " ".join(sorted(each.replace(",", " ").split()))  # a list has any order
            for each in lines
            if each.partition("=")[0] not in stated
        )
        for lines in (theirs, ours)
    )
    return [*unified_diff(one, other, "broker", "serve", n=0, lineterm="")]


def printed(bootstrap: str, call: tuple[str, ...]) -> list[str]:
    """The lines that a tool prints, without what says which server it asked, and when."""
    done = subprocess.run(
        java_command(
            *QUIET, f"org.apache.kafka.tools.{call[0]}", "--bootstrap-server", bootstrap, *call[1:]
        ),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    text = (done.stdout + done.stderr).replace(bootstrap, "ADDRESS")
    text = re.sub(r"(?<=Epoch: )\d+", "0", text)
    lines = (" ".join(each.split()) for each in text.splitlines())
    return [each for each in lines if each]
