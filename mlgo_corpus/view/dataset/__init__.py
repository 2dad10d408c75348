"""The part of a page on a dataset of decisions."""
