"""Directories as streams: what has come to each partition since the batch before.

From the entry down: reader, reach.
"""
