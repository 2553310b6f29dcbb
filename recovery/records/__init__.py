"""Records as columns. Only `reader` and `columns`, and the export, import pyarrow.

From the entry down: columns, piece_reader, read_options.
"""
