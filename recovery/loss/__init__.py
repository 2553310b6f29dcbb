"""Lost, aborted and duplicate records, and differences between replicas, record by record.

From the entry down: comparison, sides, survey, content_rows, rows.
"""
