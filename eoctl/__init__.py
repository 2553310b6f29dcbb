"""The command line of eoctl."""

__version__ = "0.1.0"
