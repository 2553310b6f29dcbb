"""Records on standard input and output: lines, JSON, msgpack, values by schema.

From the entry down: schemas, record_writers, bulk_record_writers, record_text, inputs.
"""
