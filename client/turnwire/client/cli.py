"""The `turnwire` command.

Above it: the console script. Below it: `command_group`, which needs the `cli` extra; this module is what says so.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    try:
        from turnwire.client.command_group import turnwire
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "turnwire":
            raise
        sys.stderr.write("Error: the command line needs: pip install 'turnwire[cli]'\n")
        raise SystemExit(2) from None
    turnwire(prog_name="turnwire")


if __name__ == "__main__":
    main()
