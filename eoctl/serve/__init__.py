"""A virtual broker over the directories of dead ones: Kafka's protocol, read-only.

Its rooms: answers, state, logs, protocol. Here it listens, and takes requests off connections.

From the entry down: server, connection.
"""
