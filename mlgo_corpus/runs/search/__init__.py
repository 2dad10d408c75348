"""Search for better decisions, module by module."""
