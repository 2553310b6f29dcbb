"""Fuzzing: any bytes into any parser give a value or a `FormatError`.

`targets` is the table of everything that takes bytes, with what must hold of it. `make fuzz` feeds
it inputs that coverage leads to; `test_fuzz_share` a fixed number of inputs, the same in every run.
"""
