"""A log dir for a new cluster, empty or built from the log dirs of dead brokers.

Modules from the entry point down: adoption, adopted_topics, survey, dead_brokers, records.
"""
