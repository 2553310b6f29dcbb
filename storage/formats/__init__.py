"""The byte layouts.

Bytes in, values out, and back. One file kind, one module; nothing here opens a file.

From the entry down: consumer_offsets, cluster_metadata, group_records, remote_log_metadata,
share_group_state, transaction_state, api_message_frame, consumer_protocol, control_record,
coordinator_record, legacy_message, metadata_records, compression, message, meta_properties,
producer_snapshot, quorum_state, time_index, checkpoint, clean_shutdown, lz4_frame, message_codec,
offset_index, partition_metadata, record, record_batch, java_text, java_utf8, message_json,
producer_id_record, txn_index, varint, entry_sequence, zero_tail.
"""
