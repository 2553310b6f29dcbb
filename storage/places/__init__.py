"""Log dirs anywhere, local or behind URIs: listed, and cut into pieces of work.

From the entry down: split_pruning, planned_splits, splits, log_end, find, remote, local,
place_files, listing.
"""
