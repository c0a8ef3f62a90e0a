"""Who else is told what happens to a run: programs by webhooks, people by mail."""
