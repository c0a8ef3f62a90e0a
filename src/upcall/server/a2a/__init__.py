"""The runs as tasks of the Agent2Agent protocol (A2A): a guest of the service, found by its entry point."""
