"""Brokers of a played cluster, its controller and its transaction coordinator.

From the entry down: broker, beginnings, broker_follower, broker_life, coordinator, controller.
"""
