"""One check for each kind of file.

Each goes over a partition or log dir once and gives findings.

From the entry down: partition_check, kraft, assignment, log_walk, offsets, batches, log_dirs,
records, replay_check, absent, coordinator_records, indexes, kraft_release, log_dir_release,
sequences, state_files, broker_version, circumstances, collector, reclaim, record_rules, unfinished.
"""
