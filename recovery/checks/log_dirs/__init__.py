"""Which rules does a log dir break?

Its checkpoints, its metadata log, and what is assigned to it and not there.

From the entry down: kraft, offsets, reclaim, log_dirs.
"""
