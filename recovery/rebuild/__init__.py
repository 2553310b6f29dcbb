"""Indexes and snapshots from the log, byte-equal to a broker's, and compared with the disk.

From the entry down: partitions, diff, older_brokers, derive, segment_pass, index_builder,
verify_index.
"""
