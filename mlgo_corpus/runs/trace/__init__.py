"""The decisions of a compiler on every module."""
