"""A log dir for a new cluster, empty or built from the log dirs of dead brokers.

From the entry down: adoption, adopted_topics, survey, dead_brokers, records.
"""
