"""Calls that change a log dir by a plan.

`change_command` is the way that all of them go.

From the entry down: repair, rebuild, rejoin, truncate, recover_state, change_command,
repair_words, rebuild_jobs, plan_words.
"""
