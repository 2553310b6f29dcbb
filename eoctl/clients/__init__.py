"""What a Kafka client does, over a partition directory instead of a connection."""
