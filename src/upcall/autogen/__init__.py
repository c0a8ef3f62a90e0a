"""All that touches AutoGen."""
