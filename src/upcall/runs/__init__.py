"""A run as a value."""
