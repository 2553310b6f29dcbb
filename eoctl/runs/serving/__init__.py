"""One call of `eoctl serve`.

From the entry down: serve, rows.
"""
