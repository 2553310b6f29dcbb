"""A log dir and its partitions.

Found, listed, read; what their checkpoints and metadata say.

From the entry down: log_tail, compaction, partition, offset_ledger, acknowledged, topic_settings,
cluster_image, state_file, discovery, lookup, partition_files, log_dir.
"""
