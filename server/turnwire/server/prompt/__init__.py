"""From items to tokens: renderers, token segments and the vocabulary.

Above it: the session core and the engines, which need counts and token ids. Below it: nothing but tiktoken; nothing in
this package does I/O beyond reading its own package data.
"""
