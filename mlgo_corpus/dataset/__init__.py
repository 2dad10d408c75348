"""Datasets: decisions and sizes as Parquet."""
