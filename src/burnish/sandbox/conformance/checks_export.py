"""Exported snapshots: what comes back is what was there, and nothing is believed that comes from a store."""

from collections.abc import AsyncGenerator, AsyncIterator

from burnish.errors import UserError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check
_BELOW = """
set -e
mkdir -p tree/deep opaque && echo old > tree/deep/old && echo hidden > opaque/hidden
echo gone > gone && echo below > replaced && echo hard > hard-1 && ln hard-1 hard-2
"""
_ABOVE = """
set -e
rm gone && rm -r opaque && mkdir opaque && echo shown > opaque/shown && echo above > replaced
ln -s replaced link && ln -s nowhere link-2 && ln link link-3 && mkfifo -m 640 pipe && ln hard-1 hard-3
echo > .wh.replaced && echo > .wh..wh..opq && mkdir -m 1777 sticky
touch -d '2001-02-03 04:05:06.789' dated && chmod 4 dated
truncate -s 1G sparse && echo end >> sparse
mkdir "$(printf 'not-utf8-\\377')" && echo a > "$(printf 'new\\nline = %%')"
mkdir -p long && cd long
for i in 1 2 3 4 5 6; do n=$(printf 'n%.0s' $(seq 200)); mkdir $n; cd $n; done; echo far > far
"""
_DESCRIBE = (
    "find . -mindepth 1 ! -type d -printf '%P %y %m %n %l %s %b %T@\\n' | sort; find . -mindepth 1 -type d -printf "
    "'%P %y %m %T@\\n' | sort; find . -type f -size -1M -readable -exec grep -H '' {} + | sort; tail -c 4 sparse; "
    "id -un; stat -c %U . replaced / | head -n 2"
)


class _Store:
    """In memory, and as unreliable as is asked of it."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.written: list[str] = []

    async def has(self, key: str) -> bool:
        return key in self.objects

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        if key not in self.objects:
            raise UserError("the store does not have it", where=key)
        data = self.objects[key]
        for at in range(0, len(data), 1 << 16):
            yield data[at : at + (1 << 16)]

    async def write(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        self.objects[key] = b"".join([piece async for piece in pieces])
        self.written.append(key)


async def _describe(bench: Bench) -> bytes:
    result = await bench.sh(_DESCRIBE)
    expect(result.exit_code == 0, f"the description itself failed: {tail(result)}")
    return result.stdout


@check("snapshot.export", "snapshot", "shell", "limits.disk")
async def an_imported_snapshot_is_the_exported_one(bench: Bench) -> None:
    """Deletions, replaced directories, links, holes, pipes, modes, times, names: as if the sandbox went on."""
    for line in (_BELOW, _ABOVE):
        result = await bench.sh(line)
        expect(result.ok, tail(result))
        snapshot = await bench.box.snapshot()
    before = await _describe(bench)
    store, heard = _Store(), list[int]()
    name = await bench.backend.export_snapshot(snapshot, store, on_bytes=heard.append)
    expect(sum(heard) > 0, "nobody heard of the progress")
    async with await bench.backend.import_snapshot(name, store) as imported:
        again = await bench.backend.export_snapshot(imported, _Store())
        async with await bench.backend.create(limits=LIMITS, snapshot=imported) as box:
            copy = Bench(bench.backend, box)
            after = await _describe(copy)
            expect(after == before, f"differs: {set(before.splitlines()) ^ set(after.splitlines())}")
            result = await copy.sh("echo more > more && rm replaced && cat opaque/shown more")
            expect(result.stdout == b"shown\nmore\n", f"the copy cannot go on: {tail(result)}")
    expect(again == name, "exported again, it has another name")


@check("snapshot.export", "snapshot", "files")
async def what_a_store_has_is_not_written_again(bench: Bench) -> None:
    """A second snapshot costs what was written since the first; one that is there already costs nothing."""
    store = _Store()
    await bench.box.files.write("a", "first")
    first = await bench.box.snapshot()
    await bench.backend.export_snapshot(first, store)
    num_first = len(store.written)
    await bench.box.files.write("b", "second")
    second = await bench.box.snapshot()
    name = await bench.backend.export_snapshot(second, store)
    expect(len(store.written) == num_first + 2, f"more than a layer and a manifest: {store.written[num_first:]}")
    await bench.backend.export_snapshot(second, store)
    expect(len(store.written) == num_first + 2, f"written again: {store.written[num_first + 2 :]}")
    await first.release()
    await second.release()
    imported = await bench.backend.import_snapshot(name, store)
    async with imported, await bench.backend.create(limits=LIMITS, snapshot=imported) as box:
        found = await box.files.read("a"), await box.files.read("b")
        expect(found == (b"first", b"second"), f"files are missing: {found}")


@check("snapshot.export", "snapshot", "shell")
async def a_store_that_lies_is_refused(bench: Bench) -> None:
    """Every object cut short, changed in a bit, lengthened, missing: an error of the caller's, and nothing is left."""
    await bench.sh("head -c 300000 /dev/urandom > noise; echo text > text")
    store = _Store()
    async with await bench.box.snapshot() as snapshot:
        name = await bench.backend.export_snapshot(snapshot, store)
    whole = dict(store.objects)
    for key, data in whole.items():
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        for lie in (data[:-1], data[:middle], b"", flipped, data + b"\0", data + data, None):
            store.objects = {**whole, key: lie} if lie is not None else {k: v for k, v in whole.items() if k != key}
            try:
                await bench.backend.import_snapshot(name, store)
            except UserError:
                continue
            expect(
                False, f"{key} of {len(data)} bytes was believed when it was {'none' if lie is None else lie[:20]!r}"
            )
    store.objects = whole
    await (await bench.backend.import_snapshot(name, store)).release()
    await bench.expect_alive()


@check("snapshot.export", "snapshot", "shell", "limits.disk")
async def an_import_is_bounded_by_its_disk_limit(bench: Bench) -> None:
    """A snapshot that needs more than is allowed is refused."""
    await bench.sh("head -c 3000000 /dev/zero > zeros")
    store = _Store()
    async with await bench.box.snapshot() as snapshot:
        name = await bench.backend.export_snapshot(snapshot, store)
    try:
        await bench.backend.import_snapshot(name, store, disk_bytes=1 << 20)
    except UserError as error:
        expect("disk limit" in error.cause, f"refused for another reason: {error.cause}")
    else:
        expect(False, "three megabytes were put into one")


CHECKS = _registry.all()
