"""Worker processes: values mapped in order or as they come, streams in order, one way to start.

From the entry down: streams, processes.
"""
