"""One walk over the batches of a segment.

As a definition (pure) and in bulk (numpy), with the same results.

From the entry down: numpy_kernel, scan, resync, pure, record_table, layouts, offset_order,
protocol, select.
"""
