"""Mergeable summaries of pieces of a log: producers, sequences and transactions.

From the entry down: codec, partition, segment, summary, settled_epochs, producer_summary,
sequence_ranges.
"""
