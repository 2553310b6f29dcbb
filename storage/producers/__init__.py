"""A broker's state of producers and transactions: the definition, batch by batch.

From the entry down: transaction_metadata, producer_state, java_hash_map, transactions, pairs.
"""
