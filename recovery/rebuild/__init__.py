"""Indexes and snapshots from the log.

Byte-equal to those of a broker, and compared with what is there.

From the entry down: many, diff, older_brokers, derive, segment_pass, index_builder, verify_index.
"""
