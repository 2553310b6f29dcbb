"""Checks, one for each kind of file.

Each check reads a partition or log dir once and returns findings. This package checks a
partition's segments, indexes and producer state. `contents` checks its records, and `log_dirs` the
log dir.

From the entry down: partition_check, log_walk, replay_check, batches, indexes.
"""
