"""A consumer's reading: from an offset on, as a client with this isolation is given it.

From the entry down: batch_reader, consumer, log_walk, table_records, consumed.
"""
