"""Who leads when dead brokers are started again, in which order, and what that loses.

From the entry down: advice, nodes, copies, orders, rules.
"""
