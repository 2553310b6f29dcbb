"""What a piece of log says.

Of producers, sequences and transactions, in a form that adds up over pieces.

From the entry down: codec, partition, segment, summary, settled_epochs, producer_summary,
sequence_ranges.
"""
