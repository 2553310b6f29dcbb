"""Duplicate records: proved by producer ids and sequences, or suspected by their contents.

Modules from the entry point down: search, groups, record_digests, scan, spill.
"""
