"""The server: a pure session core, the runtime that carries out its effects, and thin doors in front of it."""
