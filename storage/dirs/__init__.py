"""A log directory and its partitions.

Contents: discovery, listing and reading, with the content of checkpoints and metadata.

From the entry down: log_tail, compaction, partition, offset_ledger, acknowledged_offsets,
topic_settings, group_settings, cluster_image, state_file, discovery, lookup, partition_files,
log_dir.
"""
