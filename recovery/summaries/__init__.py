"""What a piece of log says.

Of producers, sequences and transactions, in a form that adds up over pieces.

From the entry down: held, codec, partition, segment, summary, sequence_gaps, settled_epochs,
violations, fingerprint, producer_summary, read_findings, sequence_ranges.
"""
