"""Records that are there twice.

Proved by producer ids and sequences, or suspected by their contents.

From the entry down: search, groups, batch_outcomes, payloads, proved, suspected, record_digests,
rows, scan, spill, contents.
"""
