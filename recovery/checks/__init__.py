"""The checks of `eoctl check`, one module for each part of the reference's section 4."""
