"""Calls of `txn`.

Transactions listed, aborted, completed and run.

From the entry down: abort, reports, complete, run, readers.
"""
