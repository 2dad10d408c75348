"""The section of a page on a corpus."""
