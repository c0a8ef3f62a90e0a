"""The HTTP client that the installed `openai` package takes: `httpx2` with new versions of it, `httpx` with others."""

try:
    import httpx2 as httpx
except ImportError:
    import httpx  # type: ignore[import-not-found, no-redef]

__all__ = ["httpx"]
