"""Producer state, from a log and from snapshots, in bulk.

What a broker knows of producers after recovery.

From the entry down: known_producers, recover_state, snapshots, bulk_state, segment_walk,
end_markers, transaction_events, price, producer_columns.
"""
