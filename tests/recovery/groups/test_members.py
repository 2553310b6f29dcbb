"""The state of a group by its records: what a coordinator says once it has loaded them."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.groups.members import GroupKind, GroupState

GROUP, MEMBER_METADATA, TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 22, 23
PLANNED_TASKS, CONSUMER_CURRENT, SHARE_GROUP, SHARED = 21, 8, 11, 15
STABLE, UNREVOKED = 1, 2  # MemberState of streams groups


def streams_group(
    *, epoch: int = 3, target: int = 3, member: int = 3, state: int = STABLE, validated: int = 0
) -> GroupState:
    """A group with one member, as StreamsGroupHeartbeat leaves it."""
    group = GroupState(group="g", partition=0)
    key: dict[str, Any] = {"groupId": "g"}
    member_key = {**key, "memberId": "m"}
    group.take(MEMBER_METADATA, member_key, {"clientId": "c", "clientHost": "h"})
    group.take(TOPOLOGY, key, {"epoch": 0})
    group.take(GROUP, key, {"epoch": epoch, "validatedTopologyEpoch": validated})
    group.take(TARGET, key, {"assignmentEpoch": target})
    tasks = [{"subtopologyId": "0", "partitions": [0, 1]}]
    current = {"memberEpoch": member, "state": state, "activeTasks": tasks}
    group.take(CURRENT, member_key, current)
    return group


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "Stable"),
        ({"validated": -1}, "NotReady"),
        ({"epoch": 4}, "Assigning"),
        ({"member": 2}, "Reconciling"),
        ({"state": UNREVOKED}, "Reconciling"),
        ({"epoch": 4, "validated": -1}, "NotReady"),
    ],
)
def test_states_of_a_streams_group(fields: dict[str, int], state: str) -> None:
    group = streams_group(**fields)
    assert (group.kind, group.state) == (GroupKind.STREAMS, state)


def test_a_streams_group_without_topology_or_without_members() -> None:
    group = streams_group()
    group.take(TOPOLOGY, {"groupId": "g"}, None)
    assert group.state == "NotReady"
    group.take(MEMBER_METADATA, {"groupId": "g", "memberId": "m"}, None)
    assert group.state == "Empty"
    group.take(GROUP, {"groupId": "g"}, None)
    assert (group.kind, group.state) == (GroupKind.CLASSIC, "Empty")


def test_all_of_a_streams_member_is_kept() -> None:
    group = streams_group()
    key = {"groupId": "g", "memberId": "m"}
    group.take(MEMBER_METADATA, key, {"clientId": "c", "clientHost": "h", "processId": "p"})
    planned = {"activeTasks": [], "standbyTasks": [{"subtopologyId": "0", "partitions": [1]}]}
    group.take(PLANNED_TASKS, key, planned)
    member = group.members["m"]
    assert (member.client or {})["processId"] == "p"
    assert (member.tasks or {})["activeTasks"] == [{"subtopologyId": "0", "partitions": [0, 1]}]
    assert member.planned_tasks == planned
    group.take(PLANNED_TASKS, key, None)
    assert member.planned_tasks is None


def test_a_consumer_still_has_what_it_must_give_back() -> None:
    group = GroupState(group="g", partition=0)
    parts = [{"topicId": b"t" * 16, "partitions": [each]} for each in (0, 1)]
    current = {
        "memberEpoch": 2, "state": UNREVOKED, "assignedPartitions": parts[:1],
        "partitionsPendingRevocation": parts[1:],
    }  # fmt: skip
    group.take(CONSUMER_CURRENT, {"groupId": "g", "memberId": "m"}, current)
    member = group.members["m"]
    assert [each.partitions for each in (*member.assigned, *member.revoking)] == [(0,), (1,)]


def test_partitions_of_a_share_group_outlive_its_members() -> None:
    group = GroupState(group="g", partition=0)
    key = {"groupId": "g"}
    group.take(SHARED, key, {"initializedTopics": [{"topicId": b"t" * 16, "partitions": [0, 1]}]})
    group.take(SHARE_GROUP, key, {"epoch": 4})
    group.take(SHARE_GROUP, key, None)
    assert [each.partitions for each in group.shared] == [(0, 1)]
    group.take(SHARED, key, None)
    assert group.shared == ()
