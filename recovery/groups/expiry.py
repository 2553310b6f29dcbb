"""Which committed offsets a broker deletes soon after its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.groups.members import GroupKind

if TYPE_CHECKING:
    from recovery.groups.group_log import GroupCommit
    from recovery.groups.members import GroupState

RETENTION_MS = 10_080 * 60_000  # offsets.retention.minutes


def is_expired(group: GroupState, commit: GroupCommit, now_ms: int) -> bool:
    """Whether a broker of today deletes a committed offset soon after its start.

    Offsets of a group without members live for offsets.retention.minutes, of which no file tells:
    the default is taken. Those of a transaction that is open are kept.
    """
    if group.members or commit.pending_producer_id is not None:
        return False
    value = commit.value
    if value.expire_timestamp_ms >= 0:
        return now_ms >= value.expire_timestamp_ms
    since_ms = value.commit_timestamp_ms
    is_emptied = group.kind is GroupKind.CLASSIC and group.protocol_type
    if is_emptied and group.state_timestamp_ms is not None:
        since_ms = group.state_timestamp_ms
    return now_ms - since_ms >= RETENTION_MS
