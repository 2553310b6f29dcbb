"""Truncate a partition: the offset, the cost, and the plan.

From the entry down: cost, plan, target, removed_part.
"""
