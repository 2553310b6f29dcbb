"""The effects of the broker's next start on the files, predicted.

From the entry down: prediction, log_dirs, files, segment_recovery.
"""
