"""From one pause of a run to the next."""
