"""The reading and changing of files.

Contents: the only module that changes files, the lock of a log directory, URIs.

From the entry down: broker_lock, file_systems, fsio, uris, positioned_file.
"""
