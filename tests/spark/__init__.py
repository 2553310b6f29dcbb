"""Tests that need Spark; those of the command are in tests/cli."""
