"""A log dir and its partitions.

Found, listed, read; what their checkpoints and metadata say.

From the entry down: log_tail, partition, standing, setting_values, log_config, topic_settings,
tiering, acknowledged, cluster_image, state_file, discovery, lookup, partition_files, log_dir.
"""
