"""Batches and records as lines of text, in bulk.

From the entry down: printing_scan, bulk, renderers, record_lines, batch_lines, painter, plain.
"""
