"""The table of metadata records: keys, names and versions as of 4.3.1."""

from __future__ import annotations

from storage.formats import cluster_metadata
from storage.formats.metadata_records import RECORDS

NAMES = {
    0: "REGISTER_BROKER_RECORD", 1: "UNREGISTER_BROKER_RECORD", 2: "TOPIC_RECORD",
    3: "PARTITION_RECORD", 4: "CONFIG_RECORD", 5: "PARTITION_CHANGE_RECORD",
    7: "FENCE_BROKER_RECORD", 8: "UNFENCE_BROKER_RECORD", 9: "REMOVE_TOPIC_RECORD",
    10: "DELEGATION_TOKEN_RECORD", 11: "USER_SCRAM_CREDENTIAL_RECORD", 12: "FEATURE_LEVEL_RECORD",
    14: "CLIENT_QUOTA_RECORD", 15: "PRODUCER_IDS_RECORD", 17: "BROKER_REGISTRATION_CHANGE_RECORD",
    18: "ACCESS_CONTROL_ENTRY_RECORD", 19: "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    20: "NO_OP_RECORD", 21: "ZK_MIGRATION_STATE_RECORD", 22: "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    23: "BEGIN_TRANSACTION_RECORD", 24: "END_TRANSACTION_RECORD", 25: "ABORT_TRANSACTION_RECORD",
    26: "REMOVE_DELEGATION_TOKEN_RECORD", 27: "REGISTER_CONTROLLER_RECORD", 28: "CLEAR_ELR_RECORD",
}  # fmt: skip


def test_names() -> None:
    assert cluster_metadata.RECORD_NAMES == NAMES
    for key, name in NAMES.items():
        constant = name.removesuffix("_RECORD")
        assert getattr(cluster_metadata, constant) == key


def test_versions() -> None:
    versions = {key: schema.highest_version for key, schema in RECORDS.items()}
    assert {key: last for key, last in versions.items() if last} == {0: 4, 3: 2, 5: 2, 17: 3}
    assert all(schema.flexible_since == 0 for schema in RECORDS.values())


def test_tags_are_numbered_without_gaps() -> None:
    for schema in RECORDS.values():
        tags = sorted(field.tag for field in schema.fields if field.tag >= 0)
        assert tags == list(range(len(tags)))
