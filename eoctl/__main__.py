"""`python -m eoctl`."""

from eoctl.main import run

if __name__ == "__main__":
    run()
