"""Cut a partition: where, what it costs, and the plan of it.

From the entry down: price, plan, target, cut.
"""
