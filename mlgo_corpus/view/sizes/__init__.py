"""The part of a page on a table of functions."""
