"""Spark: a data source over log directories, and jobs on it. Imported by their commands only."""
