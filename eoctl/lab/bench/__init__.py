"""Benchmarks of real Kafka brokers, and what of their records has landed on the disks.

`scenarios` are a table of cells; `course` runs each of them several times in a cluster: `brokers`
that are started here from Kafka's programs in a `work_dir`, or somebody's own cluster. `load` sends
and follows every record; `landed` receives, reads the logs of the brokers by our own readers and
holds them against what the producer was told. `tables` says what it comes to; `run` is the call.

(The measurements of eoctl itself are in the folder `bench` beside this package.)

From the entry down: run, tables, course, landed, load, brokers, work_dir, client, scenarios.
"""
