"""Measurements of server and client, side by side in one run."""
