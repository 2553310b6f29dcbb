"""The releases of Kafka that start on log dirs, the data they drop, the needs of feature levels.

From the entry down: levels, answers, survey.
"""
