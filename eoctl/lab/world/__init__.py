"""What nodes and clients of a simulated cluster share: time, network, history, faults.

From the entry down: network, metadata, settings, faults, leader.
"""
