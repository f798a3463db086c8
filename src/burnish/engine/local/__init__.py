"""The local engine: a transformers model in a process of its own. Importing this package loads no torch."""

from burnish.engine.local.client import LocalEngine

__all__ = ["LocalEngine"]
