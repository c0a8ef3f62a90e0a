"""The commands, grouped by purpose: work on runs, look at them, change stored runs, maintain the store."""
