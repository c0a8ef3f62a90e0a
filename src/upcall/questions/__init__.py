"""What is asked and answered."""
