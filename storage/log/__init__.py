"""A segment with its batches, records and markers.

From the entry down: decoded_records, intact_batches, segment.
"""
