"""Plans that repair a damaged partition: as the broker would, or keeping every good batch.

From the entry down: plan, salvage, repaired, salvage_scan, broker_start, strategies.
"""
