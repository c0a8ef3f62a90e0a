"""Runs and questions in a notebook."""
