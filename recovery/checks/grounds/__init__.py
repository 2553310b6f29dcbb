"""The basis of all checks: the collector of findings, its exceptions, and the release of Kafka.

Modules from the entry point down: kraft_release, broker_version, collector.
"""
