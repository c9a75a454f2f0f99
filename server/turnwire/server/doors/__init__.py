"""Doors: what a transport needs to reach the core. No decision is taken in a door."""
