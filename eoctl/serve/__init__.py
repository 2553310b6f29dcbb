"""A read-only virtual broker: Kafka's protocol over the log directories of dead brokers.

Packages: answers, state, logs, protocol. This package listens and reads requests from connections.

From the entry down: server, connection.
"""
