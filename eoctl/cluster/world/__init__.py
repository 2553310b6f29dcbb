"""What nodes and clients of a played cluster share: time, network, messages, history, settings.

From the entry down: history, messages, network, trace, metadata, scheduler, settings.
"""
