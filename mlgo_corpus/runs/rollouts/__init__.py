"""Modules compiled again and again by policies that change: what a trainer learns from."""
