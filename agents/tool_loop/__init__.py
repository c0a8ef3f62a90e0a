"""The tool loop of `PausableAgent` and its parts."""
