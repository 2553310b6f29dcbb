"""Leaders after dead brokers are started again, by the order of starts, and the resulting losses.

Modules from the entry point down: advice, nodes, copies, orders, rules.
"""
