"""A segment: its batches, its records, its marks.

From the entry down: decoded_records, intact_batches, segment.
"""
