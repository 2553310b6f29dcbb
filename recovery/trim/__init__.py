"""Trim a partition from its start, as DeleteRecords: the new log start, the cost, and the plan.

From the entry down: cost, plan.
"""
