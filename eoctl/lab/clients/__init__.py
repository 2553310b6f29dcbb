"""Clients of a simulated cluster: producers, consumers and a probe of the service.

From the entry down: consumer, producer.
"""
