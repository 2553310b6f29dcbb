"""Duplicate records: proved by producer ids and sequences, or suspected by their contents.

From the entry down: search, groups, record_digests, scan, spill.
"""
