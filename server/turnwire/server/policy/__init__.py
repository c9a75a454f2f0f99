"""What a request must be before it may change anything: checked values in, entries of a transcript or an error out.

Above: the runtime, which runs these checks inline or in a thread. Below: the session core's values and the language.
Each check sees only what is new, does no I/O and keeps nothing but verdicts on JSON Schemas.
"""
