"""A real Kafka broker, a real client and kafka-dump-log: the judges of the tests marked `broker`."""
