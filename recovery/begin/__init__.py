"""A log dir from nothing, or from what is left of others: what a cluster begins with.

From the entry down: coordinators, adoption, taken_files, adopted_settings, adopted_topics, survey,
dead_brokers, internal_topics, security, room, empty, records.
"""
