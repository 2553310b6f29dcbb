"""What happened in a partition, by time and by offset: how much, transactions, producers.

Made of the headers that a check, or an audit, reads anyway; pieces of a log add up.

From the entry down: piece, spans.
"""
