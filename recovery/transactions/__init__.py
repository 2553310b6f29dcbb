"""The outcome of each transaction (committed, aborted, open or unknown), and what readers get.

From the entry down: abort, view, isolation, open_transactions, outcomes, unknown_ends, events.
"""
