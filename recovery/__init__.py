"""What to do about what is on disk: check, rebuild, plan, apply. No printing."""
