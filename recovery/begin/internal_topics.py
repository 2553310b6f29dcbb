"""The topics that brokers, and we, make for themselves: partitions, and settings with one replica.

What a broker gives them as it creates them is in AutoTopicCreationManager.
"""

from __future__ import annotations

from storage.file_names import GROUPS_TOPIC, PRODUCER_IDS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.writing.coordinator import DEFAULT_PARTITIONS_COUNT

MAX_PARTITIONS = 100_000  # in a log dir that is begun

_COORDINATOR_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
INTERNAL_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    GROUPS_TOPIC: (
        DEFAULT_PARTITIONS_COUNT,
        _COORDINATOR_SETTINGS | {"compression.type": "producer"},
    ),
    TRANSACTION_STATE_TOPIC: (
        DEFAULT_PARTITIONS_COUNT,
        _COORDINATOR_SETTINGS
        | {
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        },
    ),
    PRODUCER_IDS_TOPIC: (1, {"cleanup.policy": "compact"}),
}
