"""The shared base of the agents that answer in one JSON object."""
