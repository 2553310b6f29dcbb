"""A call of `cluster`: a played cluster made, run and judged.

From the entry down: judge, table, search, replay, play.
"""
