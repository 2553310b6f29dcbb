"""Leaders after dead brokers are started again, by the order of starts, and the resulting losses.

From the entry down: advice, nodes, replica_logs, orders, rules.
"""
