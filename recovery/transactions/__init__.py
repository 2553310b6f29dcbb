"""What became of each transaction.

Committed, aborted, open, and what readers are given of it.

From the entry down: prepared, view, abort, planned_append, isolation,
open_transactions, outcomes, events.
"""
