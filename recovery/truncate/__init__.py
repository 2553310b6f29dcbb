"""Truncate a partition: the offset, the cost, and the plan.

From the entry down: price, plan, target, cut.
"""
