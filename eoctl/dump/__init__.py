"""What `dump-segment` does: one module per family of files, the same walk for text and rows."""
