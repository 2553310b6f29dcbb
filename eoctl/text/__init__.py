"""Batches and records as lines of text, in bulk.

From the entry down: bulk, pipeline, renderers, record_lines, batch_lines, painter, plain.
"""
