"""The gateways there are, in the order in which they are shown.

Above it: the measurement. Below it: a file for each. One more is one more file, and its name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnwire.bench.peers.gateways import agentic_api, litellm, smg, turnwire
from turnwire.bench.peers.port import Gateway

GATEWAYS: Final[Mapping[str, Gateway]] = {
    each.name: each for each in (turnwire.GATEWAY, agentic_api.GATEWAY, smg.GATEWAY, litellm.GATEWAY)
}
