"""The basis of all checks: the collector of findings, its exceptions, and the release of Kafka.

From the entry down: kraft_release, broker_version, collector.
"""
