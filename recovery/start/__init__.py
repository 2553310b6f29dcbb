"""What the next start of the broker would do to the files: foretold, not done.

From the entry down: prediction, files, log_dirs, changes.
"""
