"""What is on disk, and the rules of appending to it. No policy, no printing."""
