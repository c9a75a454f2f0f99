"""The agent: local tools, and the loop that lets a model call them over one session."""
