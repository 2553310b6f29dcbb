"""`dump-segment`: the output of kafka-dump-log, and the same content as rows.

From the entry down: run, follow, index_text, rows, log_text, session, selection.
"""
