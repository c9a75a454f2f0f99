"""Clients of MCP servers, on the official SDK: bounded transports, connections that are shared, and their results."""
