"""The tool loop of `PausableAgent`, and what belongs to it."""
