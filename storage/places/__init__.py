"""Log directories anywhere, local or behind URIs: listed, and split into pieces of work.

From the entry down: log_reader, splits, list_places, place_files, listing.
"""
