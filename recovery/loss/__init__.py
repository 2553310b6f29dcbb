"""What is lost, aborted or there twice, and what differs from another copy, record by record.

From the entry down: against, before, sides, survey, aborted, around, content_rows, rows.
"""
