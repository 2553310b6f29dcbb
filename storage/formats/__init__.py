"""Bytes to values and back. Pure: buffer in, value out; no file, no clock, no log."""
