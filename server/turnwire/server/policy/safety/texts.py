"""The texts of an item, and whose words they are.

Above it: the classifiers. Below it: the terms of `prompt/parts`. Images and files have no text here, and JSON is taken
as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnwire.server.prompt.parts import call_of, message_texts, output_of, part_texts
from turnwire.server.session.transcript import item_text
from turnwire.v1.item_pb2 import Item, Role


def said(item: Item) -> Iterator[tuple[str, bool]]:
    """Yields the texts of an item, each with whether the model said it: what clients replay counts as such too."""
    match item.WhichOneof("kind"):
        case "message":
            model = item.message.role == Role.ROLE_ASSISTANT
            for text in message_texts(item.message)[0]:
                yield text, model
        case "reasoning":
            for text in part_texts((*item.reasoning.summary, *item.reasoning.content))[0]:
                yield text, True
        case "mcp_list_tools":
            for tool in item.mcp_list_tools.tools:
                yield tool, False
        case "mcp_approval_response":
            yield item.mcp_approval_response.reason, False
        case _:
            call, output = call_of(item), output_of(item)
            if call is not None:
                yield call.name, True
                yield call.text, True
            if output is not None:
                for text in output.texts:
                    yield text, False
            if call is None and output is None:
                yield item_text(item), False
