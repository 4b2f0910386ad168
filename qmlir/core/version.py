"""The version of the package, which is recorded in artifacts, caches and the tuning database."""

__version__ = "0.1.0"
