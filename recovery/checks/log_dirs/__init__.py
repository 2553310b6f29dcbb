"""Rules for a log dir: its checkpoints, its metadata log, and its assigned but missing partitions.

Modules from the entry point down: kraft, offsets, reclaim, log_dirs.
"""
