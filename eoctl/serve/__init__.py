"""A virtual broker over the directories of dead ones: Kafka's protocol, read-only.

From the entry down: server, connection, api, fetch, dead_groups, groups, metadata, settings,
transactions, offsets, quotas, refusals, broker, catalogue, choice, served_log, sent_bytes,
gathered, open_files, wire_walk, commit_file, members, errors, messages.
"""
