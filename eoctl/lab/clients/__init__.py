"""Clients of a simulated cluster: producers, consumers, and one that asks what still serves.

From the entry down: consumer, producer.
"""
