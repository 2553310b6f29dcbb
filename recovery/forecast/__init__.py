"""The deletions and cleanings of a broker's own tasks after its start, predicted.

From the entry down: one_forecast, deep_counts, cleaner, retention, removals, started_log,
settings.
"""
