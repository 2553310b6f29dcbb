"""Options of a source, and the rows that a task makes for them.

From the entry down: task_rows, columns, record_plan, opening, source_options, kafka_options,
kept_modules.
"""
