"""One check for each kind of file.

Each goes over a partition or log dir once and gives findings: here a partition's segments, indexes
and producer state; `contents` its records, `log_dirs` what lies around it.

From the entry down: partition_check, log_walk, replay_check, batches, indexes.
"""
