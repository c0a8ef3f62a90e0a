"""Sources, quotes and citations."""
