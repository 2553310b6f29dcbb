"""A Spark data source over log dirs, and jobs that use it. Only their commands import it.

From the entry down: audit, running_audit, mapping, tables, datasource, session, executors, bundle,
own_packages.
"""

from pathlib import Path

OWN_PACKAGES = ("eoctl", "recovery", "storage")  # packages that executors import


def packages_root() -> Path:
    """Return the directory, or the bundle, that our packages are imported from."""
    import storage

    return Path(storage.__file__).absolute().parents[1]
