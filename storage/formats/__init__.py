"""The byte layouts.

Each module decodes and encodes one kind of file or record. No module here opens a file.

From the entry down: consumer_offsets, remote_log_metadata, cluster_metadata, share_group_state,
transaction_state, control_record, coordinator_record, legacy_message, compression, message,
meta_properties, producer_snapshot, quorum_state, time_index, checkpoint, clean_shutdown,
offset_index, partition_metadata, record, record_batch, java_text, producer_id_record, txn_index,
varint, index_entries.
"""
