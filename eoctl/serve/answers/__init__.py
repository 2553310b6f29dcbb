"""The answers to the requests of Kafka's protocol.

From the entry down: fetch, described_groups, transactions, metadata, settings, security, groups,
refusals.
"""
