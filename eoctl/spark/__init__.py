"""A data source for Spark over log dirs, and jobs on it. Imported by their commands only.

From the entry down: audit, running_audit, mapping, tables, datasource, session, executors, bundle,
own_packages.
"""

from pathlib import Path

OWN_PACKAGES = ("eoctl", "recovery", "storage")  # that an executor imports our code from


def packages_root() -> Path:
    """Return the directory, or the bundle, that our packages are imported from."""
    import storage

    return Path(storage.__file__).absolute().parents[1]
