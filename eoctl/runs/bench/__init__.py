"""A call of `bench`: from its options to runs, tables and recorded samples.

From the entry down: run, request, record.
"""
