"""Plans that mend a damaged partition: as the broker would, or keeping every good batch.

From the entry down: plan, salvage, quarantine, as_broker, move_away, salvage_scan, repaired,
batch_content, broker_start, directory_files, mended_checkpoints, run_order, strategies.
"""
