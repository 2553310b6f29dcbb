"""A cluster that is played: real log dirs, virtual time, one seed.

Brokers that lead and follow by Kafka's rules (`storage.replication`, `recovery.elections`,
`recovery.running`), a controller with a metadata log, a transaction coordinator, clients with a
history, faults; and what judges it, from histories and files alone.

`world` has what all of them share, `nodes` brokers and who decides, `clients` who asks them;
`faults` what may befall it, `guarantees` what it may lose by that, `checker` what judges it.

From the entry down: layout, simulation, nemesis.
"""
