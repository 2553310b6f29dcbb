"""What is answered to each request of Kafka's protocol.

From the entry down: fetch, transactions, metadata, settings, groups, refusals.
"""
