"""Write what `pex --complete-platform` takes: one file for each version of Python.

    python scripts/platforms.py DIRECTORY MACHINE GLIBC VERSION...    # x86_64 2.28 3.11 3.12

Wheels for that machine and that glibc or an older one fit, whatever Python runs here. pex itself
takes wheels for one glibc alone, and compiles what has none.
"""

import json
import sys
from pathlib import Path

from packaging import tags

OLDEST_MINOR = 5  # glibc 2.5 is manylinux1
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def platforms(machine: str, glibc_minor: int) -> list[str]:
    """Name the platforms of wheels, the newest glibc first."""
    names = []
    for minor in range(glibc_minor, OLDEST_MINOR - 1, -1):
        names.append(f"manylinux_2_{minor}_{machine}")
        if minor in LEGACY:
            names.append(f"{LEGACY[minor]}_{machine}")
    return [*names, f"linux_{machine}"]


def complete_platform(machine: str, glibc_minor: int, version: str) -> dict[str, object]:
    """Describe CPython of a version on Linux."""
    pair = tuple(map(int, version.split(".")))
    names = platforms(machine, glibc_minor)
    abi = f"cp{version.replace('.', '')}"
    fitting = [
        *tags.cpython_tags(pair, [abi], names),
        *tags.compatible_tags(pair, abi, names),
    ]
    return {
        "path": None,
        "compatible_tags": [str(each) for each in fitting],
        "marker_environment": {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": "linux",
        },
    }


def main() -> None:
    """Write the files, and print their paths."""
    directory, machine, glibc, *versions = sys.argv[1:]
    for version in versions:
        path = Path(directory) / f"python-{version}.json"
        found = complete_platform(machine, int(glibc.partition(".")[2]), version)
        path.write_text(json.dumps(found, indent=1))
        print(path)


if __name__ == "__main__":
    main()
