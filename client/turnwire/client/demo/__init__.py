"""The demo: agents repair copies of a small project over one stream to a real server, with a simulated model.

`server` starts the server, `sample` copies and tests the project, `show` runs the agents and shows what happens.
"""
