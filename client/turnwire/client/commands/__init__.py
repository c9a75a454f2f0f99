"""The commands of `turnwire`, one module each; `turnwire.client.cli` finds them by their entry points."""
