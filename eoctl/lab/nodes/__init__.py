"""Brokers of a simulated cluster, its controller and its transaction coordinator.

From the entry down: broker, broker_life, coordinator, controller, running_log, power_loss.
"""
