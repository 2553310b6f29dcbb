"""What became of each transaction.

Committed, aborted, open or unknown, and what readers are given of it.

From the entry down: abort, view, isolation, open_transactions, outcomes, unknown_ends, events.
"""
