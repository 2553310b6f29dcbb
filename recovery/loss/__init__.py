"""Lost, aborted and duplicate records, and differences between replicas, record by record.

From the entry down: against, sides, survey, content_rows, rows.
"""
