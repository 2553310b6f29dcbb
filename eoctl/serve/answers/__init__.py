"""The answers to the requests of Kafka's protocol.

From the entry down: fetch, transactions, metadata, settings, groups, refusals.
"""
