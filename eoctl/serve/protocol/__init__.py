"""The words of Kafka's protocol: its messages, by a table, and its errors.

From the entry down: messages.
"""
