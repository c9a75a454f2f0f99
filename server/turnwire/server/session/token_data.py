"""Token ids and log-probabilities for those who asked: trainers, who would otherwise guess them back from text."""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.server.session.chunks import TokenRecord
from turnwire.v1.response_pb2 import TokenOutput, TokenSpan


def token_output(records: Sequence[TokenRecord]) -> TokenOutput:
    """Packs the tokens of some passes, each as what was rendered for it and what was sampled."""
    last = records[-1]
    output = TokenOutput(
        template_hash=last.template_hash,
        tokenizer_hash=last.tokenizer_hash,
        weight_version=last.weight_version or None,
    )
    for record in records:
        if record.rendered:
            output.spans.append(TokenSpan(sampled=False, ids=record.rendered))
        if record.sampled:
            output.spans.append(TokenSpan(sampled=True, ids=record.sampled, logprobs=record.logprobs))
    return output
