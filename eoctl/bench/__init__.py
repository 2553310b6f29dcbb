"""Benchmarks of real Kafka brokers, and what of their records has landed on the disks.

`scenarios` are a table of cells; `course` runs each of them several times in a cluster: `brokers`
that are started here, by `programs` from outside, in a `work_dir`. `load` sends and follows
every record, `reader` receives, `landed` reads the logs of the brokers by our own readers and holds
them against what the producer was told. `tables` says what it all comes to.

(The measurements of eoctl itself are in the folder `bench` beside this package.)

`against` is somebody's own cluster, whose disks are elsewhere: there `consumed` takes the place of
`landed`'s reading. `java_load` is Kafka's own producer, for comparison.

From the entry down: tables, course, reader, consumed, landed, latency, java_load, machine, against,
brokers, client, load, identity, node_settings, work_dir, programs, scenarios.
"""
