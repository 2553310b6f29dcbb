"""What a leader knows of its followers, and what follows from it.

ISR, high watermark, answers to producers. Pure: events in, values out; no files, no clock.

From the entry down: leader, progress.
"""
