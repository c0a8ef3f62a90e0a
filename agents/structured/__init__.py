"""What the agents that answer in one JSON object share."""
