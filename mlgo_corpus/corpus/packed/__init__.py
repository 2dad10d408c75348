"""Packed corpora: modules as rows of Parquet files."""
