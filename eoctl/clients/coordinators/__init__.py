"""What a broker keeps in internal topics, written as it does.

Producer ids, transactions, group offsets.

From the entry down: transactional, group_offsets, log_dir_coordinator, coordinator_topic,
producer_id_topic.
"""
