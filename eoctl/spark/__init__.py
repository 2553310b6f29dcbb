"""Spark: a data source over log directories, and jobs on it. Imported by their commands only."""

OWN_PACKAGES = ("eoctl", "recovery", "storage")  # that an executor imports our code from
