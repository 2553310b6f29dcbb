"""Benchmarks of real Kafka brokers, and the records that reached their disks.

`scenarios` is a table of cells. `scenario` runs each cell several times in a cluster: `brokers`
started here from Kafka's programs in a `work_dir`, or a cluster of the user. `load` sends and
follows every record. `landed` consumes, reads the brokers' logs with eoctl's readers, and compares
both with the producer's answers. `tables` presents the results. `run` is the command.

(The measurements of eoctl itself are in the folder `bench` beside this package.)

From the entry down: run, tables, runner, audit, load, brokers, work_dir, client, scenarios.
"""
