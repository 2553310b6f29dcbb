"""What a broker keeps in internal topics, written as it does.

Producer ids, transactions, group offsets.

From the entry down: log_dir_coordinator, producer_id_topic.
"""
