"""Scripts that made archives of `tests/golden` with real brokers; they are run by hand."""
