"""The service: an HTTP API over the store, and an inbox for the browser. It needs the extra ``[server]``."""
