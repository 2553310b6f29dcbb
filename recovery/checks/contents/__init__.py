"""Rules for records: of batches, of compacted topics, and of the coordinators' topics.

From the entry down: records.
"""
