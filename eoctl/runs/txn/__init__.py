"""Calls of `txn`.

Transactions listed, aborted, committed, completed and run.

From the entry down: abort, commit, commit_copies, written_copies,
committables, reports, complete, run, readers.
"""
