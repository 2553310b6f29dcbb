"""Options of a source, and the rows that a task makes for them.

From the entry down: task_rows, columns, record_plan, missing_segments, source_options,
kafka_options, gc_freeze.
"""
