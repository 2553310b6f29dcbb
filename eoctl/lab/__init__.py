"""The laboratory: a cluster simulated over real log dirs, and benchmarks of real brokers.

Only the commands `eoctl sim` and `eoctl bench` import it.

The simulated cluster has real log dirs, virtual time and one seed. `nodes` has its brokers, its
controller and its transaction coordinator, which follow Kafka's rules. `clients` has the clients
that write a history. `context` has the shared parts and the faults. `checker` judges a run from
histories and files alone. `guarantees` searches for possible losses. `sim` has the commands of
`eoctl sim`. `bench` measures real brokers.

From the entry down: simulation, layout.
"""
