"""The version, read by the build from this file, so that asking for it needs no installed metadata."""

__version__ = "0.1.0"
