"""What became of each transaction.

Committed, aborted, open, and what readers are given of it.

From the entry down: prepared, view, abort, isolation, open_transactions, outcomes, events.
"""
