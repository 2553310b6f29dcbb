"""What is answered to each request of Kafka's protocol.

From the entry down: api, fetch, transactions, offsets, metadata, settings, quotas, groups,
dead_groups, refusals.
"""
