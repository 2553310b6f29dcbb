"""What a crash leaves: record every change a command makes, replay all that a disk may hold after.

recording.py  a FileSystem that works on a real directory and notes each call with its payload
states.py     all states of the disk that a crash at any moment may leave, for a checker
scenario.py   prepare, run, check: over all states, and with each one fsync left out
faults.py     a FileSystem whose n-th call fails
"""
