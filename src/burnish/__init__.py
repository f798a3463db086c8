"""burnish: agentic reinforcement-learning post-training of language models, in real sandboxes, verified objectively."""

__version__ = "0.1.0"
