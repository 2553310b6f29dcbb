"""How a file is read and changed.

The one module that changes files, the lock of a log dir, URIs.

From the entry down: broker_lock, file_systems, fsio, uris, positioned_file.
"""
