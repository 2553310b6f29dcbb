"""A producer: partitioner, batches, sequences, acknowledgements.

From the entry down: session_keeper, topic_producer, producer, produce_session.
"""
