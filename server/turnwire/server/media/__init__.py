"""Images and files in process: measured, bounded and counted without a hop to another service.

Above it: policy, which reads what is new in a request, and the runtime, which fetches what a URL stands for. Below it:
the items and errors of `turnwire.v1`. See docs/images.md.
"""
