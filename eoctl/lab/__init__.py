"""The laboratory: a cluster that is simulated over real log dirs, and real brokers, measured.

Nothing outside imports it but the commands `eoctl sim` and `eoctl bench`.

The simulated cluster has real log dirs, virtual time and one seed. `nodes` has its brokers, its
controller and its transaction coordinator, which lead and follow by Kafka's rules; `clients` has
who asks them and writes down a history; `world` what they share, and which faults they meet.
`checker` judges what became of it from histories and files alone, `guarantees` looks for what may
be lost. `sim` is what the calls of `eoctl sim` do and say. `bench` measures real brokers.

From the entry down: simulation, layout.
"""
