"""Where images are kept.

    STORE/lock                    held while names or images change hands, for moments
    STORE/names/NAME              the digest that a name stands for
    STORE/images/DIGEST/          image.json, rootfs/, and `lock`, which everybody who uses the image holds shared
    STORE/drafts/RANDOM/          an image in the making, or one to be removed; whoever works on it holds its `lock`

An image exists when a name says so: the name is written last and removed first, so a crash at any point leaves a draft
or a nameless image, and `sweep` removes both.
"""

import contextlib
import difflib
import errno
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from burnish.errors import SandboxError, UserError, boundary
from burnish.sandbox.images.custody import Custody, claim, remove_tree, share
from burnish.sandbox.images.image import Image, ImageLimits
from burnish.sandbox.images.location import default_store_dir
from burnish.sandbox.images.reference import name_from_file, parse_reference
from burnish.sandbox.images.unpack import Unpacked, unpack

Fetch = Callable[[Path], tuple[Path, str | None]]
_DIGEST_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


class ImageStore:
    """Images under names. Any number of processes may use one store at once.

    Example:
        store = ImageStore()
        store.import_image("rootfs.tar.zst", name="mine:1")
        with store.hold("mine:1") as image:
            ...  # image.rootfs stays as long as the block lasts
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else default_store_dir()
        self._custody = Custody(self.root)

    def import_image(self, source: str, name: str | None = None, *, limits: ImageLimits = ImageLimits()) -> Image:
        """Unpacks a directory, a tar (plain, gz, zst, xz, bz2), an OCI layout or a docker-archive into the store.

        Args:
            source: a path; `PATH#NAME` picks one of several images in it.
            name: what to call it. None takes what the source calls it, else the name of its file. An image that had
                the name before loses it, and goes when it has no other.
            limits: see `ImageLimits`.

        Raises:
            UserError: there is no such source, it is damaged, hostile, too large, for another machine, or the disk
                is full. The store is then as it was.
            SandboxError: the store cannot be used.
        """
        given, mark, wanted = source.partition("#")
        if not mark or Path(source).exists():
            given, wanted = source, ""
        path = Path(given).expanduser()
        if not path.exists():
            raise UserError("no such file or folder", where=given, fix="give a directory, an archive or an OCI layout")
        if path.is_dir() and path.resolve() in (self.root.resolve(), *self.root.resolve().parents):
            raise UserError("the image store is inside it", where=given, fix="choose a narrower folder")
        return self.make(lambda draft: (path, wanted or None), name=name, source=source, limits=limits)

    def make(self, fetch: Fetch, *, name: str | None, source: str, limits: ImageLimits) -> Image:
        """`import_image` of what `fetch` puts into a draft folder.

        `fetch` is given the folder, and returns the path of the source and which image of it is wanted.
        """
        given = None if name is None else parse_reference(name).name  # before the work, not after
        with self._told(source):
            self.sweep()
            with self._custody.draft() as draft:
                path, wanted = fetch(draft)
                made = unpack(path, wanted, draft, limits)
                for extra in draft.iterdir():
                    if extra.name not in ("rootfs", "lock"):
                        remove_tree(extra)
                chosen = given or _own_name(made) or parse_reference(name_from_file(path.resolve().name)).name
                (draft / "image.json").write_text(json.dumps(_record(made, source)), encoding="utf-8")
                draft.chmod(0o755)  # drafts are private; a cache may be shared
                self._publish(draft, made.digest, chosen)
            self.sweep()  # what had the name before
            return self.get(chosen)

    def get(self, ref: str) -> Image:
        """The image of a name, of a name without its tag where there is only one, or of a digest or its beginning.

        A digest is the image's own, or that of the manifest it came from. Raises UserError when there is no such image,
        with the closest name, or when several fit.
        """
        return self._find(ref)[0]

    def list(self) -> list[Image]:
        """All images, once for each name, by name. Raises SandboxError when the store is damaged."""
        with boundary(SandboxError, during=f"read the image store {self.root}"):
            found = (self._load(unquote(path.name), path) for path in self._named())
            return sorted((image for image in found if image is not None), key=lambda image: image.name)

    def remove(self, ref: str) -> None:
        """Removes a name, and the image when that was its last; by digest, the image with all its names.

        Raises UserError when there is no such image, or when somebody holds it.
        """
        with self._told(ref):
            with self._custody.locked():
                going = self._find(ref)
                image = going[0]
                left = [one for one in self.list() if one.digest == image.digest and one not in going]
                with contextlib.nullcontext(True) if left else claim(image.rootfs.parent) as is_ours:
                    if not is_ours:
                        raise UserError("the image is in use", where=repr(ref), fix="close its sandboxes first")
                    for one in going:
                        self._name_file(one.name).unlink()
            self.sweep()

    @contextlib.contextmanager
    def hold(self, ref: str) -> Iterator[Image]:
        """The image of `ref`, kept from being removed until the block ends or this process does.

        Raises UserError when there is no such image.
        """
        image = self.get(ref)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(share(image.rootfs.parent))
            except FileNotFoundError:
                raise UserError("the image was removed just now", where=repr(ref), fix="import it again") from None
            yield image

    def sweep(self) -> None:
        """Removes what nobody owns: drafts of the dead, and images without a name that nobody holds.

        Every import and removal does this first; whoever starts may, too.
        """
        needed: set[str] = set()

        def is_needed(folder: Path) -> bool:
            if not needed:  # read with the store's lock held, as `Custody.sweep` calls this
                needed.update(path.read_text() for path in self._named())
            return f"sha256:{folder.name}" in needed

        self._custody.sweep(is_needed)

    def _find(self, ref: str) -> Sequence[Image]:
        """The images that `ref` means, all of one digest: several where it is a digest with several names."""
        images = self.list()
        found = _by_name(images, ref)
        if len(found) > 1:
            raise _ambiguous(ref, found)
        if not found and (prefix := _DIGEST_PREFIX.fullmatch(ref.rpartition("@")[2])):
            start = f"sha256:{prefix[1]}"
            found = [one for one in images if one.digest.startswith(start) or _source(one).startswith(start)]
            if len({image.digest for image in found}) > 1:
                raise _ambiguous(ref, found)
        if found:
            return found
        close = difflib.get_close_matches(ref, [image.name for image in images], n=1, cutoff=0.3)
        raise UserError(
            "no such image", where=repr(ref), fix=f"did you mean {close[0]}?" if close else "import it, or pull it"
        )

    def _publish(self, draft: Path, digest: str, name: str) -> None:
        with self._custody.locked():
            final = self._custody.images / digest.removeprefix("sha256:")
            if not final.is_dir():  # it may be there by another name, or by another importer
                draft.rename(final)
            pending = self._custody.names / f".{quote(name, safe='')}"
            pending.write_text(digest)
            pending.replace(self._name_file(name))

    def _load(self, name: str, path: Path) -> Image | None:
        """None when the name was removed while we looked."""
        try:
            digest = path.read_text()
            folder = self._custody.images / digest.removeprefix("sha256:")
            record: dict[str, Any] = json.loads((folder / "image.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return Image(name=name, digest=digest, rootfs=folder / "rootfs", **record)

    @contextlib.contextmanager
    def _told(self, source: str) -> Iterator[None]:
        """A full disk is the user's to mend; any other trouble with the store is the machine's."""
        with boundary(SandboxError, during=f"image {source}"):
            try:
                yield
            except OSError as problem:
                if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise UserError(
                    f"the disk is full: {problem.strerror}",
                    where=str(self.root),
                    fix="make room there, or set BURNISH_CACHE to a folder on a larger disk",
                ) from problem

    def _named(self) -> Iterator[Path]:
        return self._custody.names.glob("[!.]*")

    def _name_file(self, name: str) -> Path:
        return self._custody.names / quote(name, safe="")


def _record(made: Unpacked, source: str) -> dict[str, Any]:
    """What image.json says: an `Image` without what its place says."""
    return {
        "env": dict(made.config.env),
        "workdir": made.config.workdir,
        "user": made.config.user,
        "size_bytes": made.size_bytes,
        "num_entries": made.num_entries,
        "source": source,
        "source_digest": made.source_digest,
        "ownership": made.ownership,
        "skipped": dict(made.skipped),
    }


def _own_name(made: Unpacked) -> str | None:
    """What the source calls the image, where that can be a name here."""
    with contextlib.suppress(UserError):
        return parse_reference(made.name or "").name
    return None


def _by_name(images: Sequence[Image], ref: str) -> Sequence[Image]:
    try:
        wanted = parse_reference(ref)
    except UserError:
        return []  # a digest, perhaps
    found = [image for image in images if image.name == wanted.name]
    if not found and ":" not in ref.rpartition("/")[2]:  # no tag was given: the only one will do
        found = [image for image in images if parse_reference(image.name).bare == wanted.bare]
    return found


def _source(image: Image) -> str:
    return image.source_digest or ""


def _ambiguous(ref: str, images: Sequence[Image]) -> UserError:
    names = ", ".join(image.name for image in images)
    return UserError(f"several images fit: {names}", where=repr(ref), fix="name one of them")
