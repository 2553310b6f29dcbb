"""`python -m eoctl`."""

import sys

try:
    from eoctl.start import run
except KeyboardInterrupt:  # before any handler is installed
    sys.stderr.write("eoctl: interrupted\n")
    sys.exit(130)

if __name__ == "__main__":
    run()
