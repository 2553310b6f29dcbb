"""From the log of a partition to bytes sent to a client: verified batches, not copied.

From the entry down: served_log, verified_batches.
"""
