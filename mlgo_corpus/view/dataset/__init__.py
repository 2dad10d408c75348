"""The section of a page on a dataset of decisions."""
