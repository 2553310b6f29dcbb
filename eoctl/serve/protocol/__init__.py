"""Kafka's protocol: its messages, by a table, and its error codes.

From the entry down: messages.
"""
