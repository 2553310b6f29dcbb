"""A log dir from nothing, or from what is left of others: what a cluster begins with.

From the entry down: coordinators, adoption, adopted_settings, adopted_topics, survey, taken_files,
dead_brokers, internal_topics, security, room, empty, records.
"""
