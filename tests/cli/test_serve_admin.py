"""`eoctl serve` and an administrator: credentials, ACLs, and groups of the newer protocols.

The expected answers are those of a broker of 4.4.0 on the same directories.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)

from tests.cli.test_serve_groups import Asked
from tests.kafka.broker import copy_log_dir
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Golden = Callable[[str], Path]

TIMEOUT_S = 60
GROUPS = ["rejecting", "accepting", "counting", "counting-refused", "classic", "next-generation"]
UNKNOWN_SERVER_ERROR, INVALID_GROUP, SECURITY_DISABLED, NOT_FOUND = -1, 24, 54, 69
ANY_ACL: dict[str, Any] = {
    "resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1,
    "principalFilter": None, "hostFilter": None, "operation": 1, "permissionType": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def dead(golden: Golden) -> list[Path]:
    return [golden("kafka-4.4.0") / "killed" / each for each in ("one", "two")]


@pytest.fixture(scope="module")
def served(dead: list[Path]) -> Iterator[Served]:
    with Served(*dead) as found:
        yield found


@pytest.fixture(scope="module")
def admin(served: Served) -> AdminClient:
    return AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})


@pytest.fixture
def copied(dead: list[Path], tmp_path: Path) -> list[Path]:
    return [copy_log_dir(each, tmp_path / each.name) for each in dead]


# --- security


def test_users_of_the_metadata(admin: AdminClient, served: Served) -> None:
    asked = admin.describe_user_scram_credentials(request_timeout=TIMEOUT_S)
    found = asked.result(TIMEOUT_S)
    (info,) = found["alice"].scram_credential_infos
    assert [*found] == ["alice"]
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
    users = [{"name": each} for each in ("alice", "bob", "carol", "bob")]
    with Wire(served.bootstrap) as wire:
        answer = wire.ask("DescribeUserScramCredentials", 0, {"users": users})
    codes = {each["user"]: each["errorCode"] for each in answer["results"]}
    assert codes == {"alice": 0, "bob": 92, "carol": 91}


def test_acls_of_the_metadata(admin: AdminClient) -> None:
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "plain", ResourcePatternType.MATCH, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    found = admin.describe_acls(wanted, request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert sorted((each.principal, each.host, each.permission_type) for each in found) == [
        ("User:alice", "10.1.0.0/16", AclPermissionType.ALLOW),
        ("User:bob", "2001:db8::/32", AclPermissionType.DENY),
        ("User:carol", "10.9.8.7", AclPermissionType.ALLOW),
    ]


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 3), ({"resourceTypeFilter": 3}, 0), ({"resourceNameFilter": "plain-more"}, 0),
        ({"principalFilter": "User:bob"}, 1), ({"hostFilter": "10.1.2.3"}, 0),
        ({"hostFilter": "10.1.0.0/16"}, 1), ({"permissionType": 2}, 1), ({"operation": 4}, 0),
        ({"patternTypeFilter": 4}, 0), ({"patternTypeFilter": 99}, 0),
    ],
)  # fmt: skip
def test_filters_of_acls(dead: list[Path], change: dict[str, Any], count: int) -> None:
    found = Asked(*dead).ask("DescribeAcls", 3, {**ANY_ACL, **change})
    assert found["errorCode"] == 0
    assert sum(len(each["acls"]) for each in found["resources"]) == count


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        (2, "orders-1", {"orders-", "orders-1", "*"}), (2, "orders-", {"orders-", "*"}),
        (2, "other", {"*"}), (3, "orders-1", {"orders-1"}), (4, "orders-", {"orders-"}),
        (1, "orders-", {"orders-"}), (1, None, {"orders-", "orders-1", "*"}),
    ],
)  # fmt: skip
def test_patterns_of_acls(
    dead: list[Path], pattern: int, name: str | None, matched: set[str]
) -> None:
    asked = Asked(*dead)
    image = asked.catalogue.image
    assert image is not None
    acl = next(iter(image.acls.values()))
    image.acls = {
        number.to_bytes(16): {**acl, "resourceName": own, "patternType": kind}
        for number, (own, kind) in enumerate((("orders-", 4), ("orders-1", 3), ("*", 3)))
    }
    body = {**ANY_ACL, "patternTypeFilter": pattern, "resourceNameFilter": name}
    found = asked.ask("DescribeAcls", 3, body)
    assert {each["resourceName"] for each in found["resources"]} == matched


def test_security_without_metadata_is_an_error(copied: list[Path]) -> None:
    shutil.rmtree(copied[0] / "__cluster_metadata-0")
    for skips, codes in ((False, [UNKNOWN_SERVER_ERROR] * 2), (True, [SECURITY_DISABLED, 0])):
        asked = Asked(*copied, skips=skips)
        answers = [
            asked.ask("DescribeAcls", 3, ANY_ACL),
            asked.ask("DescribeUserScramCredentials", 0, {"users": None}),
        ]
        assert [each["errorCode"] for each in answers] == codes
        assert "credentials and ACLs" in asked.reported[0]


def test_who_wants_another_cluster_starts_anew(dead: list[Path]) -> None:
    asked = Asked(*dead)
    own = asked.catalogue
    for cluster, node, code in ((own.cluster_id, own.node_id, 0), ("other", own.node_id, 129),
                                (own.cluster_id, 7, 129), (None, 7, 0)):  # fmt: skip
        body = {"clusterId": cluster, "nodeId": node}
        assert asked.ask("ApiVersions", 5, body)["errorCode"] == code


# --- groups


def test_groups_have_types_and_states(admin: AdminClient) -> None:
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert {(each.group_id, each.type.name, each.state.name) for each in listed.valid} >= {
        ("classic", "CLASSIC", "EMPTY"), ("next-generation", "CONSUMER", "EMPTY"),
    }  # fmt: skip
    asked = admin.describe_consumer_groups(
        ["classic", "next-generation"], request_timeout=TIMEOUT_S
    )
    found = {name: each.result(TIMEOUT_S) for name, each in asked.items()}
    assert {each.state.name for each in found.values()} == {"EMPTY"}
    assert found["next-generation"].partition_assignor == "uniform"


@pytest.mark.parametrize(
    ("api", "kind", "known"),
    [
        ("ConsumerGroupDescribe", "consumer", {"next-generation": ("Empty", 3, "uniform")}),
        ("ShareGroupDescribe", "share", {
            "rejecting": ("Empty", 4, "simple"), "accepting": ("Empty", 4, "simple"),
        }),
        ("StreamsGroupDescribe", "streams", {
            "counting": ("Stable", 3, "sticky"), "counting-refused": ("Stable", 3, "sticky"),
        }),
    ],
)  # fmt: skip
def test_groups_of_a_kind(
    dead: list[Path], api: str, kind: str, known: dict[str, tuple[str, int, str]]
) -> None:
    body = {"groupIds": [*GROUPS, "nobody", ""], "includeAuthorizedOperations": False}
    found = {each["groupId"]: each for each in Asked(*dead).ask(api, 1, body)["groups"]}
    for name, (state, epoch, assignor) in known.items():
        each = found.pop(name)
        assert each["errorCode"] == 0
        assert (each["groupState"], each["groupEpoch"]) == (state, epoch)
        assert (each["assignmentEpoch"], each["assignorName"]) == (epoch, assignor)
    assert found.pop("")["errorCode"] == INVALID_GROUP
    assert found.pop("nobody")["errorMessage"] == "Group nobody not found."
    assert len(found) == len(GROUPS) - len(known)
    for name, each in found.items():
        assert each["errorCode"] == NOT_FOUND
        assert each["errorMessage"] == f"Group {name} is not a {kind} group."


def test_a_streams_group(dead: list[Path]) -> None:
    asked = Asked(*dead)
    body = {"groupIds": ["counting"], "includeAuthorizedOperations": False}
    for version, wants, status in ((0, False, None), (1, False, 0), (1, True, 1)):
        found = asked.ask(
            "StreamsGroupDescribe", version, {**body, "includeTopologyDescription": wants}
        )
        (group,) = found["groups"]
        assert group.get("topologyDescriptionStatus") == status
        (part,) = group["topology"]["subtopologies"]
        assert (part["subtopologyId"], part["sourceTopics"]) == ("0", ["plain"])
        (changelog,) = part["stateChangelogTopics"]
        assert (changelog["partitions"], changelog["replicationFactor"]) == (0, -1)
        (member,) = group["members"]
        assert (member["clientId"], member["topologyEpoch"]) == ("one-StreamThread-1-consumer", 0)
        assert member["processId"] == "bd35eaa0-61f8-433b-b42f-dd355ae98c78"
        tasks = {"activeTasks": [{"subtopologyId": "0", "partitions": [0, 1]}]}
        tasks |= {"standbyTasks": [], "warmupTasks": []}
        assert member["assignment"] == member["targetAssignment"] == tasks


def share_offsets(asked: Asked, version: int, topics: Any, *groups: str) -> dict[str, list[Any]]:
    """By group, its error or (topic, partition, start offset, lag, error) of each partition."""
    body = {"groups": [{"groupId": each, "topics": topics} for each in groups]}
    found = asked.ask("DescribeShareGroupOffsets", version, body)
    return {
        group["groupId"]: [
            (topic["topicName"], each["partitionIndex"], each["startOffset"], each.get("lag"),
             each["errorCode"])
            for topic in group["topics"]
            for each in topic["partitions"]
        ]
        or group["errorCode"]
        for group in found["groups"]
    }  # fmt: skip


def test_offsets_of_share_groups(dead: list[Path]) -> None:
    asked = Asked(*dead)
    assert share_offsets(asked, 1, None, "rejecting", "accepting", "counting", "nobody") == {
        "rejecting": [("plain", 0, 1, 18, 0), ("plain", 1, -1, -1, 0)],
        "accepting": [("plain", 0, 12, 18, 0), ("plain", 1, -1, -1, 0)],
        "counting": 0, "nobody": 0,
    }  # fmt: skip
    topics = [{"topicName": "plain", "partitions": [0, 9]}, {"topicName": "no", "partitions": [0]}]
    assert share_offsets(asked, 0, topics, "accepting", "nobody", "") == {
        "accepting": [("plain", 0, 12, None, 0), ("plain", 9, -1, None, 0), ("no", 0, -1, None, 0)],
        "nobody": [("plain", 0, -1, None, 0), ("plain", 9, -1, None, 0), ("no", 0, -1, None, 0)],
        "": UNKNOWN_SERVER_ERROR,
    }  # fmt: skip


def test_share_state_that_is_elsewhere_is_an_error(copied: list[Path]) -> None:
    for number, log_dir in ((0, 0), (1, 0), (2, 1)):
        shutil.rmtree(copied[log_dir] / f"__share_group_state-{number}")
    for skips, code in ((False, UNKNOWN_SERVER_ERROR), (True, 0)):
        asked = Asked(*copied, skips=skips)
        found = share_offsets(asked, 1, None, "rejecting")
        assert found == {"rejecting": [("plain", each, -1, -1, code) for each in (0, 1)]}
        assert "__share_group_state" in asked.reported[0]


def test_a_lag_needs_the_partition(copied: list[Path]) -> None:
    shutil.rmtree(copied[0] / "plain-0")
    (first, second) = share_offsets(Asked(*copied), 1, None, "accepting")["accepting"]
    assert first[:4] == ("plain", 0, 0, -1)
    assert first[4] != 0
    assert second == ("plain", 1, -1, -1, 0)


def test_damage_in_share_state_is_an_error(copied: list[Path]) -> None:
    log = copied[0] / "__share_group_state-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    asked = Asked(*copied)
    found = share_offsets(asked, 1, None, "rejecting", "accepting")
    assert UNKNOWN_SERVER_ERROR in {each[-1] for offsets in found.values() for each in offsets}


# --- settings


def test_settings_of_groups_are_filled(admin: AdminClient) -> None:
    names = ("rejecting", "nobody")
    resources = [ConfigResource(ConfigResource.Type.GROUP, each) for each in names]
    answers = admin.describe_configs(resources, request_timeout=TIMEOUT_S)
    found = {resource.name: each.result(TIMEOUT_S) for resource, each in answers.items()}
    wanted = {
        "errors.deadletterqueue.topic.name": ("dlq.rejected", 8, "", 5),
        "errors.deadletterqueue.copy.record.enable": ("true", 8, "false", 5),
        "streams.assignor.name": ("sticky", 5, "sticky", 5),
        "share.auto.offset.reset": ("earliest", 8, "latest", 5),
        "consumer.session.timeout.ms": ("45000", 5, "45000", 5),
    }
    for name, expected in wanted.items():
        own, default = (found[group][name] for group in names)
        assert (own.value, own.source, default.value, default.source) == expected
    assert {len(each) for each in found.values()} == {21}


def test_settings_of_a_dead_letter_topic(admin: AdminClient) -> None:
    topic = ConfigResource(ConfigResource.Type.TOPIC, "dlq.rejected")
    (answer,) = admin.describe_configs([topic], request_timeout=TIMEOUT_S).values()
    found = answer.result(TIMEOUT_S)
    names = (
        "errors.deadletterqueue.group.enable", "max.decompressed.message.bytes",
        "remote.copy.lag.bytes", "remote.copy.lag.ms",
    )  # fmt: skip
    assert [(found[each].value, found[each].source) for each in names] == [
        ("true", 1), ("99999", 1), ("-1", 5), ("0", 5),
    ]  # fmt: skip


# --- what would write


@pytest.mark.parametrize(
    ("api", "version", "body", "code"),
    [
        ("AlterShareGroupOffsets", 0, {"groupId": "accepting", "topics": []}, 30),
        ("DeleteShareGroupOffsets", 0, {"groupId": "accepting", "topics": []}, 30),
        ("UnregisterController", 0, {"controllerId": 9}, 31),
    ],
)
def test_newer_writes_are_refused(
    dead: list[Path], api: str, version: int, body: dict[str, Any], code: int
) -> None:
    found = Asked(*dead).ask(api, version, body)
    assert found["errorCode"] == code
    assert "Nothing can be changed" in found["errorMessage"]
