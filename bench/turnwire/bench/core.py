"""What sessions of a server share, put together in this process: the scripted engine, and neither doors nor a disk.

Above it: the measurements of the core alone. Below it: the server's rooms, without a data directory and safety rules.
"""

from __future__ import annotations

from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.policy.prepare import Preparer
from turnwire.server.prompt import vocabulary
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.services import Observer, Services, Unobserved
from turnwire.server.session.limits import SessionLimits
from turnwire.server.store.memory import MemoryStore
from turnwire.server.tools.port import NoHostedTools


def core_services(engine: ScriptedEngine, limits: SessionLimits, observer: Observer | None = None) -> Services:
    """Returns what sessions share; needs a running event loop."""
    registry = EngineRegistry((engine,))
    return Services(
        engines=registry,
        policy=Preparer(registry.resolve, limits, count=vocabulary.count),
        store=MemoryStore(),
        tools=NoHostedTools(),
        clock=LoopClock(),
        count_tokens=vocabulary.count,
        limits=limits,
        observer=observer or Unobserved(),
    )
