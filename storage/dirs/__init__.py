"""A log dir and its partitions.

Found, listed, read; what their checkpoints and metadata say.

From the entry down: log_tail, compaction, partition, offset_ledger, standing, setting_values,
log_config, topic_settings, acknowledged, tiering, cluster_image, state_file, discovery, lookup,
partition_files, log_dir.
"""
