"""Which releases of Kafka start on log dirs, what each of them drops, what the next levels need.

From the entry down: levels, answers, survey.
"""
