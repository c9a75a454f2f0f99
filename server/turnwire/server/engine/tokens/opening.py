"""Opens a token engine for use: asks it about itself, checks that it goes with its renderer, puts the parts together.

Above it: `app`. Below it: `rendered` and `agreement`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from turnwire.server.engine.tokens.agreement import check_agreement
from turnwire.server.engine.tokens.passes import CacheReport
from turnwire.server.engine.tokens.port import EngineStartError, TokenEngine
from turnwire.server.engine.tokens.rendered import RenderedEngine
from turnwire.server.engine.tokens.rendering import ChainRenderer, RenderStats
from turnwire.server.prompt.parsing import TokenTable, UnknownFormatError
from turnwire.server.prompt.renderer import Renderer


async def open_token_engine(
    tokens: TokenEngine,
    renderer: Renderer,
    output_format: str,
    table: TokenTable,
    *,
    models: Sequence[str] = (),
    contexts: Mapping[str, int] = MappingProxyType({}),
    on_rendered: Callable[[RenderStats], None] = lambda _: None,
    on_cached: Callable[[CacheReport], None] = lambda _: None,
) -> RenderedEngine:
    """Returns an engine that is ready; see `RenderedEngine` for the arguments. Safe to cancel.

    The token engine is closed where this raises.

    Raises:
        EngineStartError: It cannot be reached, or does not go with the renderer; the text names both.
    """
    try:
        facts = await tokens.facts()
        await check_agreement(tokens, facts, renderer, table)
        return RenderedEngine(
            tokens,
            facts,
            ChainRenderer(renderer),
            output_format,
            table,
            models=models,
            contexts=contexts,
            on_rendered=on_rendered,
            on_cached=on_cached,
        )
    except UnknownFormatError as error:
        await tokens.aclose()
        raise EngineStartError(str(error)) from error
    except BaseException:
        await tokens.aclose()
        raise
