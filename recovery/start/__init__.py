"""What the next start of the broker does to the files, predicted.

From the entry down: prediction, log_dirs, files, segment_recovery.
"""
