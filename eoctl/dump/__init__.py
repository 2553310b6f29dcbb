"""`dump-segment`: what kafka-dump-log prints, and the same as rows.

From the entry down: run, follow, tables, index_rows, index_text, log_text, rows, decoders, session,
markers, options, context, property_files, selection.
"""
