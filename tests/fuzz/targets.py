"""The table of everything that takes bytes from outside, by name."""

from __future__ import annotations

from . import (
    command_targets,
    duplicate_targets,
    format_targets,
    message_targets,
    native_targets,
    plan_targets,
    segment_targets,
    serve_targets,
    summary_targets,
)

TARGETS = {
    target.name: target
    for target in (
        *format_targets.TARGETS,
        *message_targets.TARGETS,
        *segment_targets.TARGETS,
        *native_targets.TARGETS,
        *command_targets.TARGETS,
        *plan_targets.TARGETS,
        *duplicate_targets.TARGETS,
        *summary_targets.TARGETS,
        *serve_targets.TARGETS,
    )
}
