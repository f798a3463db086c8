"""The local engine: a transformers model in a process of its own. Importing this package loads no torch."""

from burnish.engine.local.client import EngineStats, LocalEngine

__all__ = ["EngineStats", "LocalEngine"]
