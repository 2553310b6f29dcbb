"""What the options of a source ask for, and how a task makes rows of it.

From the entry down: task_rows, columns, record_plan, opening, source_options, kafka_options,
kept_modules.
"""
