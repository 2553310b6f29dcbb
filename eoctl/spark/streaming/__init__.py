"""Directories as streams: the records that reached each partition since the last batch.

From the entry down: reader, readable_end.
"""
