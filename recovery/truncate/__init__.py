"""Cut a partition: where, what it costs, and the plan of it.

From the entry down: price, transactions, plan, target, epoch_ends, counts, cut.
"""
