"""Producer state, from a log and from snapshots, in bulk.

What a broker knows of producers after recovery.

From the entry down: recover_state, snapshots, bulk_state, end_markers, producer_columns.
"""
