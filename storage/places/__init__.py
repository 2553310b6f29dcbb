"""Log dirs anywhere, local or behind URIs: listed, and cut into pieces of work.

From the entry down: split_pruning, splits, log_end, find, remote, local, place_files, listing.
"""
