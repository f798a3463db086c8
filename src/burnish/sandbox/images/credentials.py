"""What `docker login` and its kind have stored for a registry."""

import base64
import binascii
import os
from pathlib import Path

from burnish.errors import UserError
from burnish.sandbox.images.manifest import child, parse_json
from burnish.sandbox.images.reference import DOCKER_HUB

_DOCKER_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")


def config_file() -> Path:
    """$DOCKER_CONFIG/config.json, or ~/.docker/config.json."""
    folder = os.environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def stored_credentials(registry: str) -> tuple[str, str] | None:
    """User name and password for a registry; None is anonymous. Helper programs are not run.

    Raises UserError when the file is damaged.
    """
    path = config_file()
    try:
        text = path.read_bytes()
    except OSError:
        return None
    auths = child(parse_json(text, str(path)), "auths", dict, str(path))
    keys = [
        registry,
        f"https://{registry}",
        f"https://{registry}/",
        *(_DOCKER_HUB_KEYS if registry == DOCKER_HUB else ()),
    ]
    found = next((auths[key] for key in keys if key in auths), None)
    encoded = child(found, "auth", str, str(path)) if found is not None else ""
    if not encoded:
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as problem:
        raise UserError(f"the entry for {registry} is damaged", where=str(path), fix="log in again") from problem
    return (user, password.rstrip("\0")) if colon else None
