"""Notifications about runs: to programs by webhooks, to people by mail."""
