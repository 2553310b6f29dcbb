"""Log dirs anywhere, local or behind URIs: listed, and cut into pieces of work.

From the entry down: splits, find, place_files, listing.
"""
