"""What a running broker does to its log dir: start, append, follow, cut, checkpoint, stop.

From the entry down: divergence, log_dir, running_log, batch_places, running_transactions.
"""
