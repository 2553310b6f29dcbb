"""The deletions and cleanings of a broker's own tasks after its start.

`one_forecast` puts the others together for a partition. `started_log` has the facts of a log after
the start. `settings` has the settings in force. `retention`, `cleaner`, `expiry` and `room` are
rules over these. `deep_counts` counts records that a cleaning removes.
"""
