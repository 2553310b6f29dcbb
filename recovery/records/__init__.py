"""Records as columns. Only `reader` and `columns`, and the export, import pyarrow.

From the entry down: reader, columns, counting, piece_reader, bounds, decoded, read_options.
"""
