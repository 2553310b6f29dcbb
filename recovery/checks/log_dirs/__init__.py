"""Rules for a log dir: its checkpoints, its metadata log, and its assigned but missing partitions.

From the entry down: kraft, offsets, log_dirs.
"""
