"""A consumer's reading: from an offset on, as a client with this isolation is given it.

From the entry down: batch_consumer, consumer, batch_reader, log_reader, log_walk, bulk_records,
single_records, table_records, consume_bounds, consumed, json_source, log_damage, log_watch.
"""
