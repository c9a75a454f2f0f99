"""Web search as a hosted tool, behind a port for providers."""
