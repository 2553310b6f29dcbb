"""Appends as a broker makes them.

The bytes, the checks before them, the files beside the log.

From the entry down: producer_ids, coordinator, group_commits, keyed_log, writer, batch_run,
metadata_snapshot, record_builder, client_batch, partition_store, replica_batch, value_records.
"""
