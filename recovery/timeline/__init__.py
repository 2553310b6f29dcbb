"""The history of a partition, by time and by offset: volume, transactions, producers.

It comes from the headers that a check or an audit reads anyway. Pieces of a log add up.

From the entry down: piece, spans.
"""
