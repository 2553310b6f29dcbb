"""Records on standard input and output: lines, JSON, msgpack.

From the entry down: record_writers, bulk_record_writers, record_text, inputs.
"""
