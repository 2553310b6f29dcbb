"""A producer: partitioner, batches, sequences, acknowledgements.

From the entry down: first_identities, options, topic_producer, acks, producer, sender,
session_keeper, link, partitioner, produce_session, sent_records.
"""
