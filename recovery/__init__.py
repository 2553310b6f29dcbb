"""Checks, rebuilds, plans and applied changes of log directories. No printing.

From the entry down: pool.
"""
