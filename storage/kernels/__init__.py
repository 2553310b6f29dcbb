"""One walk over the batches of a segment.

It exists as a definition (pure), in bulk (numpy) and compiled (native), with the same results.

From the entry down: numpy_kernel, record_table, native_kernel, scan, resync, pure, layouts,
offset_order, protocol, kernel_choice.
"""
