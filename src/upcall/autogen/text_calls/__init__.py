"""Calls that a model writes into its text: the forms that they have, how they are read, and when one is made."""
