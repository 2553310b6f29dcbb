"""Kafka clients that work on a partition directory instead of a connection."""
