"""Any model's chat template, with its own tokenizer, rendered incrementally where the template allows it.

Above: whoever renders chains, through the port in `prompt/renderer`. Below: Jinja and Hugging Face's `tokenizers`,
which the extra `template` brings; any other tokenizer by the port in `port`.
"""

from turnwire.server.prompt.template.renderer import TemplateModel, TemplateRenderer

__all__ = ["TemplateModel", "TemplateRenderer"]
