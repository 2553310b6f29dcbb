"""Records of internal topics, written as a broker writes them.

Producer ids, transactions, group offsets.

From the entry down: log_dir_coordinator, producer_id_topic.
"""
