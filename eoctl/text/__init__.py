"""Batches and records as lines of text, in bulk.

From the entry down: printing_scan, renderers, painter, plain.
"""
