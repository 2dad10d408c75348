"""The section of a page on a table of functions."""
