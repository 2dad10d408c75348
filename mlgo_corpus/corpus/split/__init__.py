"""Splits: train, validation and test."""
