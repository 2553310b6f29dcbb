"""How a file is read and changed.

The one module that changes files, the lock of a log dir, URIs.

From the entry down: remote_file, broker_lock, file_systems, forgetting, trees, fsio, spliced_file,
uris, file_attributes, path_globs, positioned_file, read_watch, small_file.
"""
