"""A cluster that is played: real log dirs, virtual time, one seed.

Brokers that lead and follow by Kafka's rules (`storage.replication`, `recovery.elections`,
`recovery.running`), a controller with a metadata log, clients with a history, faults; and what
judges it, from histories and files alone.

`faults` has what may befall it, `guarantees` what it may lose by that, `checker` what judges it.

From the entry down: layout, simulation, nemesis, probe, committing, consumer, transactional,
producer, broker, beginnings, broker_follower, broker_life, coordinator, controller, history,
messages, network, trace, metadata, scheduler, settings.
"""
