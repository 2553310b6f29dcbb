"""Records as columns. Only `reader` and `columns`, and the export, import pyarrow.

From the entry down: columns, counting, piece_reader, decoded, read_options.
"""
