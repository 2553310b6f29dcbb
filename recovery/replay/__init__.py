"""Producer state from a log and from snapshots, in bulk, as in a broker after recovery.

From the entry down: recover_state, snapshots, bulk_state, end_markers, producer_columns.
"""
