"""The tokenizer of a model folder."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from burnish.errors import UserError


def load_tokenizer(model_dir: Path) -> Any:
    """A transformers tokenizer. Raises UserError when the folder's tokenizer files cannot be used."""
    try:
        return AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"the tokenizer cannot be loaded: {error}", where=str(model_dir)) from error
