"""Opens the local engine, once per model.

Above it: `opening`. Below it: the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwire.server.engine.by_model import ByModelEngine
from turnwire.server.engine.local.config import LocalConfig, LocalEngineError
from turnwire.server.engine.local.engine import LocalEngine
from turnwire.server.engine.port import Engine
from turnwire.server.models.opening import EngineOpenError, Opening, open_all


async def open_local(opening: Opening) -> Engine:
    """Returns the engine, or several as one where there are several models. Safe to cancel.

    Raises:
        EngineOpenError: A model cannot be loaded.
    """
    spec, models = opening.spec, opening.models
    told = {"slots": spec.slots, "context": spec.context, "threads": spec.threads}
    changes: dict[str, Any] = {key: value for key, value in told.items() if value is not None}
    named = [(model.id, model.file) for model in models] or [("", Path(path)) for path in spec.models] or [("", None)]
    configs = [LocalConfig(model=file, name=name, **changes) for name, file in named]
    hears = opening.observer
    try:
        opened = await open_all(
            LocalEngine.open(config, on_rendered=hears.rendered, on_cached=hears.cached) for config in configs
        )
    except LocalEngineError as error:
        raise EngineOpenError(str(error)) from error
    return opened[0] if len(opened) == 1 else ByModelEngine(opened)
