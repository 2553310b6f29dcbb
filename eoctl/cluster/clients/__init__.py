"""Clients of a played cluster: producers, consumers, and one that asks what still serves.

From the entry down: probe, committing, consumer, transactional, producer.
"""
