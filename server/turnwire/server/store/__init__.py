"""Where responses outlive their sessions: the port and its adapters."""
