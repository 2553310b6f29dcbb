"""A log dir from nothing, or from what is left of others: what a cluster begins with.

From the entry down: adoption, adopted_topics, survey, dead_brokers, records.
"""
