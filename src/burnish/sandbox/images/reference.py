"""Names of images: what a store keeps them under, and where a registry has them."""

import re
from dataclasses import dataclass

from burnish.errors import UserError

DEFAULT_TAG = "latest"
DOCKER_HUB = "docker.io"
DOCKER_HUB_API = "registry-1.docker.io"
RESERVED = ("host",)  # the built-in view of the host's system directories
MAX_NAME_CHARS = 160  # the name is a file name of the store, with "/" and ":" written as three characters
SHAPE = "[REGISTRY/]NAME[:TAG][@sha256:DIGEST]"

_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
_PATH = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A parsed name.

    Example: Reference(registry="docker.io", repository="library/python", tag="3.12-slim", digest=None)
    """

    registry: str
    repository: str
    tag: str | None  # None only beside a digest
    digest: str | None

    @property
    def name(self) -> str:
        """What people write: Docker Hub goes without its host, its official images without `library/`."""
        short = self.repository
        if self.registry != DOCKER_HUB:
            short = f"{self.registry}/{short}"
        elif short.startswith("library/"):
            short = short.removeprefix("library/")
        return f"{short}{f':{self.tag}' if self.tag else ''}{f'@{self.digest}' if self.digest else ''}"

    @property
    def bare(self) -> str:
        """The name without tag and digest."""
        return Reference(registry=self.registry, repository=self.repository, tag=None, digest=None).name


def parse_reference(text: str) -> Reference:
    """Reads a name. Raises UserError when it has another shape than `SHAPE`, is too long, or is reserved."""
    rest, at, digest = text.partition("@")
    head, slash, tail = rest.partition("/")
    has_host = slash and ("." in head or ":" in head or head == "localhost")
    registry, path = (head, tail) if has_host else (DOCKER_HUB, rest)
    path, colon, tag = path.partition(":")
    if registry in (DOCKER_HUB_API, "index.docker.io"):
        registry = DOCKER_HUB
    fits = _HOST.fullmatch(registry) and _PATH.fullmatch(path)
    if not fits or (colon and not _TAG.fullmatch(tag)) or (at and not DIGEST.fullmatch(digest)):
        raise UserError("not an image's name", where=repr(text), fix=f"write {SHAPE}, lower case")
    if len(text) > MAX_NAME_CHARS:
        raise UserError(f"longer than {MAX_NAME_CHARS} characters", where=repr(text), fix="choose a shorter name")
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    found = Reference(
        registry=registry,
        repository=path,
        tag=tag or (None if digest else DEFAULT_TAG),
        digest=digest or None,
    )
    if found.bare in RESERVED:
        raise UserError("the name is reserved", where=repr(text), fix="choose another")
    return found


def name_from_file(file_name: str) -> str:
    """A valid name out of a file's or folder's name, the suffixes of archives cut off."""
    stem = re.sub(r"(\.(tar|tgz|txz|tbz2?|tzst|gz|zst|xz|bz2|oci))+$", "", file_name.lower())
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:MAX_NAME_CHARS] or "image"
