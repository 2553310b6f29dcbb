"""What to do about what is on disk: check, rebuild, plan, apply. No printing.

From the entry down: pool.
"""
