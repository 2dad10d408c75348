"""Policies: who decides."""
