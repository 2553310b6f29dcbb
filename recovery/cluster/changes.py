"""What can become of a cluster: the changes that `history` gives, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recovery.cluster.reasons import BrokerWhy, Why
    from storage.dirs.cluster_image import BrokerImage, PartitionImage


class PartitionChange(NamedTuple):
    """A partition is another one than before.

    Attributes:
        offset, timestamp_ms: of the metadata record that brought it into force; -1: no time.
        before: None: it was not there.
        after: None: it is not there any more.
        why: what it comes to, as far as the two tell; never empty.
        min_insync_replicas: what acks=all needs now; 0 if it is not there.
        is_under_min_isr: acks=all is refused now: too few in the ISR, or nobody leads.
    """

    offset: int
    timestamp_ms: int
    topic: str
    topic_id: bytes
    partition: int
    before: PartitionImage | None
    after: PartitionImage | None
    why: tuple[Why, ...]
    min_insync_replicas: int
    is_under_min_isr: bool

    @property
    def is_unclean(self) -> bool:
        """A leader was elected that may not have had all that was acknowledged."""
        return any(each.is_unclean for each in self.why)


class BrokerChange(NamedTuple):
    """A broker registered, was fenced, let in again, or went."""

    offset: int
    timestamp_ms: int
    broker_id: int
    before: BrokerImage | None
    after: BrokerImage | None
    why: tuple[BrokerWhy, ...]


class SettingChange(NamedTuple):
    """A dynamic setting. Values may be secrets: `cluster_metadata.SECRET_CONFIG` tells by name."""

    offset: int
    timestamp_ms: int
    resource_type: int
    resource_name: str
    name: str
    before: str | None
    after: str | None


class FeatureChange(NamedTuple):
    """A feature has another level; 0: none."""

    offset: int
    timestamp_ms: int
    name: str
    before: int
    after: int


class QuorumLeaderChange(NamedTuple):
    """A controller began to lead the metadata log."""

    offset: int
    timestamp_ms: int
    leader: int | None
    epoch: int
    voters: tuple[int, ...]


class Unread(NamedTuple):
    """Offsets that are not known: changes may lie in them.

    Attributes:
        offset: the first one.
        timestamp_ms: of the record before; -1: there is none.
        end_offset: one above the last one; None: how far it goes is not known.
    """

    offset: int
    timestamp_ms: int
    end_offset: int | None
    reason: str


Change = (
    PartitionChange | BrokerChange | SettingChange | FeatureChange | QuorumLeaderChange | Unread
)
