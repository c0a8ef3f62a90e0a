"""The commands, by what they do: work on runs, look at them, change what is stored, look after the store."""
