"""Questions and progress on a terminal."""
