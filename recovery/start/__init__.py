"""What the next start of the broker does to the files, predicted.

From the entry down: prediction, files, segment_recovery, log_dirs, changes.
"""
