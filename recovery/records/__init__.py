"""Records as columns (Arrow). Only this room and the export import pyarrow.

From the entry down: reader, bounds, columns, read_options.
"""
