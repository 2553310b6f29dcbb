"""Worker processes: values mapped in order or as they come, workers that die replaced.

From the entry down: processes.
"""
