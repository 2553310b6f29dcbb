"""Appends as a broker makes them.

Contents: the bytes, the checks before them, the files beside the log.

From the entry down: producer_ids, coordinator, writer, batch_run, record_builder, partition_store.
"""
