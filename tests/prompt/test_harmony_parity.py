"""Rendered items equal, token for token, what the format's own library makes of the same conversation."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.harmony.marks import CALL, RETURN, SPECIAL
from turnwire.server.prompt.renderer import Extension, Step, plain_history
from turnwire.server.prompt.vocabulary import encoding
from turnwire.v1.item_pb2 import Item

from .conversations import Conversation, Generator, split
from .conversations import oracle as library

SEEDS = range(400)


def extend(harmony: HarmonyRenderer, made: Conversation, items: list[Item]) -> Extension:
    return harmony.start(made.head).extend([Step(tuple(items))], plain_history())


def completion(oracle: Any, messages: list[Any], *, drop: bool = True) -> list[int]:
    conversation = library.Conversation.from_messages(messages)
    config = library.RenderConversationConfig(auto_drop_analysis=drop)
    ids: list[int] = oracle.render_conversation_for_completion(conversation, library.Role.ASSISTANT, config)
    return ids


@pytest.mark.parametrize("block", range(4))
def test_four_hundred_conversations_have_the_oracles_tokens(block: int, oracle: Any, harmony: HarmonyRenderer) -> None:
    for seed in SEEDS[block::4]:
        made = Generator(seed).conversation()
        rendered = extend(harmony, made, made.items).chain.prompt
        expected = completion(oracle, [*made.prefix, *made.kept()])
        assert list(rendered.join()) == expected, f"seed {seed}"


def test_the_oracle_drops_the_same_reasoning_of_a_first_turn(oracle: Any, harmony: HarmonyRenderer) -> None:
    dropped = 0
    for seed in SEEDS[:150]:
        generator = Generator(seed)
        made = generator.conversation(turns=1)
        extension = extend(harmony, made, made.items)
        assert list(extension.chain.prompt.join()) == completion(oracle, [*made.prefix, *made.messages])
        if made.messages and made.messages[-1].channel == "final":
            generator.user()
            dropped += any(message.channel == "analysis" for message in made.messages)
            rendered = extend(harmony, made, made.items).chain.prompt
            assert list(rendered.join()) == completion(oracle, [*made.prefix, *made.messages])
    assert dropped > 30


def test_all_reasoning_stays_where_the_request_wants_it(oracle: Any, harmony: HarmonyRenderer) -> None:
    for seed in SEEDS[:100]:
        made = Generator(seed).conversation()
        made.head = replace(made.head, all_reasoning=True)
        extension = extend(harmony, made, made.items)
        expected = completion(oracle, [*made.prefix, *made.messages], drop=False)
        assert list(extension.chain.prompt.join()) == expected
        assert not extension.retailed


def test_a_conversation_in_pieces_has_the_tokens_of_the_whole(harmony: HarmonyRenderer) -> None:
    for seed in SEEDS:
        made = Generator(seed).conversation()
        whole = extend(harmony, made, made.items).chain.prompt
        chain = harmony.start(made.head)
        for piece in split(random.Random(seed), made.items):
            extension = chain.extend([Step(piece)], plain_history())
            assert isinstance(extension.chain, type(chain))
            chain = extension.chain
        assert chain.prompt.join() == whole.join(), f"seed {seed}"


def test_special_tokens_are_those_of_the_vocabulary(oracle: Any, harmony: HarmonyRenderer) -> None:
    for name, token in SPECIAL.items():
        assert encoding().encode_single_token(name) == token
    assert set(harmony.stop_token_ids) == {RETURN, CALL} == set(oracle.stop_tokens_for_assistant_actions())
