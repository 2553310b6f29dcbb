"""The state of a group by its records: what a coordinator says once it has loaded them."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.groups.members import GroupKind, GroupState

GROUP, MEMBER_METADATA, TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 22, 23
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
