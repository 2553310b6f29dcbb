"""`python -m eoctl`."""

from eoctl.start import run

if __name__ == "__main__":
    run()
