"""Formats: they read bytes in memory, and start no processes and open no folders."""
