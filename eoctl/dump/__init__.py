"""`dump-segment`: what kafka-dump-log prints, and the same as rows.

From the entry down: run, follow, index_text, rows, log_text, session, selection.
"""
