"""One walk over the batches of a segment.

As a definition (pure), in bulk (numpy) and compiled (native), with the same results.

From the entry down: numpy_kernel, native_kernel, scan, resync, pure, record_table, layouts,
offset_order, protocol, select.
"""
