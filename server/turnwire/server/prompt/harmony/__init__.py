"""The harmony format of gpt-oss models, rendered with tiktoken's `o200k_harmony`.

Above: whoever renders chains, through the port in `prompt/renderer`. Below: the vocabulary.
"""

from turnwire.server.prompt.harmony.renderer import HarmonyRenderer

__all__ = ["HarmonyRenderer"]
