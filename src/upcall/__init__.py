"""Agents nested in AutoGen agents ask the human in the middle of their turn; the run stops, is stored, and resumes."""
