"""What is lost, aborted or there twice, and what differs from another copy, record by record.

From the entry down: against, sides, survey, content_rows, rows.
"""
