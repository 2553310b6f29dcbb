"""Parts shared by nodes and clients of a simulated cluster: time, network, history, faults.

From the entry down: network, metadata, settings, faults, leader.
"""
