"""From the log of a partition to bytes on their way to a client: verified batches, not copied.

From the entry down: served_log, wire_walk.
"""
