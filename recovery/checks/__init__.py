"""The checks of `eoctl check`, a module for each kind of file, and the book of their rules."""
