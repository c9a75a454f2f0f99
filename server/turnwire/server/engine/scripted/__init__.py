"""The scripted engine: a simulation of a model that plays a scenario file at an exact pace.

No model runs here; whatever is measured against it says so. Above it: the runtime, through the engine port. Below it:
`scenario` (the file format and its checks), `script` (a turn as chunks), `pacing` (one ticker for all generations) and
`engine` (the adapter that ties them together).
"""
