"""The rules of the metadata log, of records within batches, and of eoctl's own files."""

from __future__ import annotations

from recovery.rules.findings import Rule, Severity

KRAFT = (
    Rule(
        check_id="KRF-1",
        title="A metadata log that does not begin at 0 has a snapshot that reaches its start.",
        severity=Severity.ERROR,
        broker="refuses to start",
        fix="Fetch the directory of the metadata log from another voter.",
        kafka="KafkaRaftLog.recoverSnapshots",
        test="planted/kraft.py",
    ),
    Rule(
        check_id="KRF-2",
        title="A snapshot is whole: a header, good batches, a footer.",
        severity=Severity.ERROR,
        broker=(
            "refuses to start if the newest snapshot is damaged, does not read older snapshots"
        ),
        fix="Move the snapshot away if another snapshot is whole.",
        excuse="A warning, or nothing that matters, for a snapshot that is not the newest.",
        kafka="Snapshots, RecordsSnapshotReader",
        test="test_kraft.py",
    ),
    Rule(
        check_id="KRF-3",
        title="quorum-state has the last epoch of the metadata log, or a higher epoch.",
        severity=Severity.WARNING,
        broker="goes on from the epoch of the log; its vote is forgotten",
        fix="Never edit quorum-state on a voter.",
        kafka="QuorumState",
        test="test_kraft.py",
    ),
    Rule(
        check_id="KRF-4",
        title=(
            "The records of the metadata decode, and the release that starts knows them and the "
            "cluster's features."
        ),
        severity=Severity.ERROR,
        broker="cannot load the cluster's metadata, and stops or serves nothing",
        fix="Start a release of Kafka that knows the records and the features.",
        excuse="A note for a record type or a version that eoctl does not know.",
        kafka="MetadataRecordSerde, MetadataLoader",
        test="test_kraft.py",
    ),
    Rule(
        check_id="KRF-5",
        title=(
            "Metadata transactions neither nest nor end without a beginning. One that is open at "
            "the end is right."
        ),
        severity=Severity.WARNING,
        broker="cannot load the cluster's metadata, and stops",
        fix="None.",
        kafka="MetadataBatchLoader",
        test="planted/kraft.py",
    ),
    Rule(
        check_id="QST-1",
        title=(
            "quorum-state is a JSON object with all keys of its version, of their types and sizes."
        ),
        severity=Severity.ERROR,
        broker="refuses to start",
        fix="Set the node up again from the quorum. Never edit quorum-state on a voter.",
        kafka="FileQuorumStateStore",
        test="test_quorum_state.py",
    ),
)

FORMATS = (
    Rule(
        check_id="MSG-1",
        title="A message is not longer than its buffer.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="Readable, ByteBufferAccessor",
        test="test_records.py",
    ),
    Rule(
        check_id="MSG-2",
        title="Null stands only where the schema allows it.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="Readable, ByteBufferAccessor",
        test="test_message.py",
    ),
    Rule(
        check_id="MSG-3",
        title="No length or count is larger than what is left, no string longer than 32767 bytes.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="ByteBufferAccessor",
        test="test_message.py",
    ),
    Rule(
        check_id="MSG-4",
        title="A tagged field that is known is as long as its size says.",
        severity=Severity.ERROR,
        broker="does not look, and reads on from where the field ended",
        kafka="Readable, ByteBufferAccessor",
        test="test_message.py",
    ),
    Rule(
        check_id="MSG-5",
        title="The version of a message is one that its schema has.",
        severity=Severity.ERROR,
        broker="fails to read it, or reads it as its newest",
        kafka="Readable, ByteBufferAccessor",
        test="test_message.py",
    ),
    Rule(
        check_id="VAR-1",
        title="A variable-length integer ends before the buffer does.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="ByteUtils.readVarint",
        test="test_varint.py",
    ),
    Rule(
        check_id="VAR-2",
        title="A variable-length integer has at most 5 bytes, or 10 for 64 bits.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="ByteUtils.readVarint",
        test="test_varint.py",
    ),
    Rule(
        check_id="FRM-1",
        title=(
            "The three numbers before a record of the metadata can be read and are at most 32767."
        ),
        severity=Severity.ERROR,
        broker="cannot load it",
        kafka="MetadataRecordSerde",
        test="test_cluster_metadata.py",
    ),
    Rule(
        check_id="FRM-2",
        title="The frame version is 1; 0 was the preview in 2.8.",
        severity=Severity.ERROR,
        broker="cannot load it",
        kafka="AbstractApiMessageSerde",
        test="test_cluster_metadata.py",
    ),
    Rule(
        check_id="FRM-3",
        title="The api key is known.",
        severity=Severity.ERROR,
        broker="cannot load it",
        kafka="AbstractApiMessageSerde",
        test="test_cluster_metadata.py",
    ),
    Rule(
        check_id="FRM-4",
        title="The version of the record is known.",
        severity=Severity.ERROR,
        broker="reads it as its newest",
        kafka="AbstractApiMessageSerde",
        test="test_cluster_metadata.py",
    ),
    Rule(
        check_id="FRM-5",
        title="The record can be read and nothing follows it.",
        severity=Severity.ERROR,
        broker="cannot load it",
        kafka="AbstractApiMessageSerde",
        test="test_cluster_metadata.py",
    ),
    Rule(
        check_id="COO-1",
        title="A coordinator's record has a key.",
        severity=Severity.ERROR,
        broker="skips it, or cannot load the partition",
        kafka="GroupCoordinatorRecordSerde, TransactionLog",
        test="test_records.py",
    ),
    Rule(
        check_id="COO-2",
        title="The type of a coordinator's record is known.",
        severity=Severity.ERROR,
        broker="skips it, or loads no group of the partition, by release",
        excuse="A note if the given release skips it.",
        kafka="CoordinatorRecordSerde",
        test="test_records.py",
    ),
    Rule(
        check_id="COO-3",
        title="The version of its value is known.",
        severity=Severity.ERROR,
        broker="its coordinator cannot load what follows",
        excuse="A warning or a note by release.",
        kafka="CoordinatorRecordSerde",
        test="test_records.py",
    ),
    Rule(
        check_id="COO-4",
        title="The status of a transaction is known.",
        severity=Severity.ERROR,
        broker="its coordinator cannot load the partition",
        kafka="TransactionState",
        test="test_records.py",
    ),
    Rule(
        check_id="COO-5",
        title="The tagged fields of a coordinator's or of a metadata record are known.",
        severity=Severity.NOTE,
        broker="ignores unknown tagged fields",
        kafka="RawTaggedField",
        test="test_records.py",
    ),
    Rule(
        check_id="CTL-1",
        title=(
            "The key of a control record has at least 4 bytes and a version that is not negative."
        ),
        severity=Severity.ERROR,
        broker="cannot load the partition where it has to read it",
        kafka="ControlRecordType.parseTypeId",
        test="test_control_record.py",
    ),
    Rule(
        check_id="CTL-2",
        title="The value of a marker has at least 6 bytes and a version that is not negative.",
        severity=Severity.ERROR,
        broker="cannot load the partition where it has to read it",
        kafka="EndTransactionMarker.deserializeValue",
        test="test_control_record.py",
    ),
    Rule(
        check_id="CTL-3",
        title="The value of another known control record is a message of its type.",
        severity=Severity.ERROR,
        broker="cannot load the metadata",
        kafka="ControlRecordUtils",
        test="test_control_record.py",
    ),
    Rule(
        check_id="PID-1",
        title=(
            "A record of the leased producer ids is msgpack of its shape, with no other field, "
            "and of version 1."
        ),
        severity=Severity.ERROR,
        broker="does not look",
        fix="eoctl leases no producer ids from such a topic.",
        kafka="none: a format of eoctl",
        test="test_producer_id_record.py",
    ),
    Rule(
        check_id="PID-2",
        title="Ids and generations of leases lie within their bounds.",
        severity=Severity.ERROR,
        broker="does not look",
        fix="eoctl leases no producer ids from such a topic.",
        kafka="none: a format of eoctl",
        test="test_producer_id_record.py",
    ),
    Rule(
        check_id="RLM-1",
        title="The state of a remote segment or partition is known.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="RemoteLogMetadataSerde",
        test="test_remote_log_metadata.py",
    ),
    Rule(
        check_id="RLM-2",
        title="A remote segment has a start offset, an end that is not lower, and a leader epoch.",
        severity=Severity.ERROR,
        broker="fails to read it",
        kafka="RemoteLogSegmentMetadata",
        test="test_remote_log_metadata.py",
    ),
    Rule(
        check_id="AUD-1",
        title="A summary that an audit keeps is whole.",
        severity=Severity.ERROR,
        broker="does not look",
        fix="Run the audit again.",
        kafka="none: a format of eoctl",
        test="recovery/summaries/test_summary.py",
    ),
)
