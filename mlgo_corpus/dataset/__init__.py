"""Datasets: decisions and sizes as Parquet, and the reasons why a module has none."""
