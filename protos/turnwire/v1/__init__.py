"""The language both sides speak: generated messages, JSON shapes, errors and ids. Imports nothing above itself."""
