"""Rules for records: of batches, of compacted topics, and of the coordinators' topics.

Modules from the entry point down: records.
"""
