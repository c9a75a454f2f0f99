"""Hosted tools: what the server runs for the model, behind a port."""
