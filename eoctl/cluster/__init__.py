"""A cluster that is played: real log dirs, virtual time, one seed.

Brokers that lead and follow by Kafka's rules (`storage.replication`, `recovery.elections`,
`recovery.running`), a controller with a metadata log, clients with a history, faults; and what
judges it, from histories and files alone.

From the entry down: explore, fault_classes, checker, layout, simulation, consumer, producer,
broker, broker_life, controller, faults, history, messages, network, trace, metadata, scheduler,
settings.
"""
