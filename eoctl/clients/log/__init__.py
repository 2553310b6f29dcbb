"""A consumer's reads: from an offset on, at an isolation level.

From the entry down: batch_reader, consumer, log_walk, table_records, consumed.
"""
