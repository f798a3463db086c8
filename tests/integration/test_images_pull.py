"""Pulling from a registry that speaks the distribution API over HTTP, in every mood."""

import base64
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from burnish.errors import SandboxError, UserError
from burnish.sandbox.images import ImageLimits, ImageStore, pull_image, registry
from tests.image_sources import INDEX, MANIFEST, OTHER_ARCHITECTURE, Layout, digest_of, holds, member, tar_bytes

LOWER = tar_bytes(member("a", b"1"), member("b", b"2"))
UPPER = tar_bytes(member(".wh.a"), member("c", b"3"))


class FakeRegistry(ThreadingHTTPServer):
    """One registry; `mood` says how it fails."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.layout = Layout()
        self.image = self.layout.image([LOWER, UPPER], config={"Env": ["A=b"]})
        self.other = self.layout.image([LOWER], architecture=OTHER_ARCHITECTURE)
        self.tags = {"1": self.image["digest"], "multi": self.layout.index(self.other, self.image)["digest"]}
        self.mood: set[str] = set()
        self.login: str | None = None  # "user:password" where one is needed
        self.requests: list[tuple[str, str | None]] = []
        self.failures = Counter[str]()  # path -> how often it still fails
        self.storage: FakeRegistry | None = None  # where blobs are redirected to
        self.released = threading.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeRegistry

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, about = urlsplit(self.path).path, self.server
        authorization = self.headers.get("Authorization")
        about.requests.append((self.path, authorization))
        if path == "/token":
            return self.token(authorization)
        if "auth" in about.mood and authorization != "Bearer let-me-in":
            realm = "http://elsewhere.example/token" if "far-realm" in about.mood else f"http://{about.host}/token"
            scope = "repository:team/app:pull"
            return self.answer(401, b"", {"WWW-Authenticate": f'Bearer realm="{realm}",service="r",scope="{scope}"'})
        if about.failures[path.rsplit("/", 1)[-1]] > 0:
            about.failures[path.rsplit("/", 1)[-1]] -= 1
            return self.answer(503, b"busy")
        kind, wanted = path.split("/")[-2:]
        if kind == "manifests":
            return self.manifest(wanted)
        return self.blob(wanted)

    def token(self, authorization: str | None) -> None:
        about, query = self.server, parse_qs(urlsplit(self.path).query)
        assert query == {"service": ["r"], "scope": ["repository:team/app:pull"]}
        expected = None if about.login is None else f"Basic {base64.b64encode(about.login.encode()).decode()}"
        if authorization != expected:
            return self.answer(401, b"{}")
        return self.answer(200, b'{"access_token": "let-me-in", "expires_in": 300}')

    def manifest(self, wanted: str) -> None:
        about = self.server
        digest = about.tags.get(wanted, wanted)
        data = about.layout.blobs.get(digest)
        if data is None:
            return self.answer(404, b"{}")
        media = json.loads(data).get("mediaType", "")
        assert media in self.headers["Accept"] and media in (INDEX, MANIFEST)
        if "wrong-manifest" in about.mood:
            data += b" "
        return self.answer(200, data, {"Content-Type": media, "Docker-Content-Digest": digest})

    def blob(self, digest: str) -> None:
        about, data = self.server, self.server.layout.blobs.get(digest)
        if about.storage is not None:
            target = f"http://{about.storage.host}/v2/x/blobs/{digest}?signature=1"
            return self.answer(307, b"", {"Location": self.path if "circle" in about.mood else target})
        if data is None:
            return self.answer(404, b"{}")
        if "wrong-blob" in about.mood:
            data = bytes([data[0] ^ 1]) + data[1:]
        if "longer" in about.mood:
            data += b"more"
        if "cut" in about.mood:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:-1])
            self.close_connection = True
            return None
        if "drip" in about.mood:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.flush()
            about.released.wait(30)
            self.close_connection = True
            return None
        return self.answer(200, data)

    def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def serving() -> Iterator[FakeRegistry]:
    with FakeRegistry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(registry, "RETRY_S", 0.001)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with serving() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def log_in(tmp_path: Path, server: FakeRegistry, login: str) -> None:
    (tmp_path / "docker").mkdir()
    entry = {"auth": base64.b64encode(login.encode()).decode()}
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {server.host: entry}}))


def nothing_is_left(store: ImageStore) -> bool:
    return store.list() == [] and not any(any((store.root / name).iterdir()) for name in ("images", "drafts"))


def test_by_tag(server: FakeRegistry, store: ImageStore) -> None:
    told: list[tuple[int, int]] = []
    image = pull_image(store, f"{server.host}/team/app:1", progress=lambda done, total: told.append((done, total)))
    assert holds(image.rootfs) == {"b": "2", "c": "3"}
    assert (image.name, image.env) == (f"{server.host}/team/app:1", {"A": "b"})
    assert image.source_digest == server.image["digest"]
    assert told[-1][0] == told[-1][1] > 0 and told == sorted(told)
    assert sorted(entry.name for entry in image.rootfs.parent.iterdir()) == ["image.json", "lock", "rootfs"]


def test_by_digest_through_an_index(server: FakeRegistry, store: ImageStore) -> None:
    ref = f"{server.host}/team/app@{server.tags['multi']}"
    image = pull_image(store, ref)
    assert store.get(ref) == store.get(server.image["digest"]) == image
    assert image.digest == pull_image(store, f"{server.host}/team/app:multi", name="short:1").digest


def test_anonymous_token(server: FakeRegistry, store: ImageStore) -> None:
    server.mood = {"auth"}
    pull_image(store, f"{server.host}/team/app:1")
    assert [path.split("?")[0] for path, _ in server.requests].count("/token") == 1


def test_stored_login(server: FakeRegistry, store: ImageStore, tmp_path: Path) -> None:
    server.mood, server.login = {"auth"}, "me:s3cret:x"
    with pytest.raises(UserError, match="denies access") as caught:
        pull_image(store, f"{server.host}/team/app:1")
    assert "docker login" in str(caught.value)
    log_in(tmp_path, server, "me:s3cret:x")
    pull_image(store, f"{server.host}/team/app:1")


def test_no_password_leaves_without_tls(server: FakeRegistry, store: ImageStore, tmp_path: Path) -> None:
    server.mood, server.login = {"auth", "far-realm"}, "me:secret"
    log_in(tmp_path, server, "me:secret")
    with pytest.raises(SandboxError, match="a login without TLS at elsewhere"):
        pull_image(store, f"{server.host}/team/app:1")


def test_a_damaged_login(server: FakeRegistry, store: ImageStore, tmp_path: Path) -> None:
    server.mood = {"auth"}
    log_in(tmp_path, server, "x")
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": "%%"}}}))
    with pytest.raises(UserError, match="log in again"):
        pull_image(store, f"{server.host}/team/app:1")


def test_redirects_do_not_carry_the_token(server: FakeRegistry, store: ImageStore) -> None:
    with serving() as storage:
        storage.layout = server.layout
        server.mood, server.storage = {"auth"}, storage
        pull_image(store, f"{server.host}/team/app:1")
        assert {authorization for _, authorization in storage.requests} == {None}
        assert len(storage.requests) == 3


def test_redirects_in_a_circle(server: FakeRegistry, store: ImageStore) -> None:
    server.mood, server.storage = {"circle"}, server
    with pytest.raises(SandboxError, match="more than 5 redirects"):
        pull_image(store, f"{server.host}/team/app:1")


@pytest.mark.parametrize(
    ("mood", "match"),
    [
        ("wrong-blob", "came damaged"),
        ("longer", "came damaged"),
        ("cut", "pull"),
        ("wrong-manifest", "with the digest"),
    ],
)
def test_lies_are_found(server: FakeRegistry, store: ImageStore, mood: str, match: str) -> None:
    server.mood = {mood}
    told: list[int] = []
    with pytest.raises(SandboxError, match=match):
        pull_image(store, f"{server.host}/team/app:1", progress=lambda done, total: told.append(done))
    assert nothing_is_left(store)
    assert told == [] or min(told) >= 0


def test_a_registry_that_recovers(server: FakeRegistry, store: ImageStore) -> None:
    server.failures = Counter({"1": 2, **dict.fromkeys(server.layout.blobs, 1)})
    assert pull_image(store, f"{server.host}/team/app:1").num_entries == 2


def test_a_registry_that_stays_down(server: FakeRegistry, store: ImageStore) -> None:
    server.failures = Counter({"1": 99})
    with pytest.raises(SandboxError, match="answered 503"):
        pull_image(store, f"{server.host}/team/app:1")
    assert len(server.requests) == registry.ATTEMPTS


def test_nobody_there(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RETRY_S", 0.001)
    with pytest.raises(SandboxError, match="pull"):
        pull_image(store, "127.0.0.1:1/x:1")


def test_a_deadline_ends_a_registry_that_stalls(server: FakeRegistry, store: ImageStore) -> None:
    server.mood = {"drip"}
    with pytest.raises(SandboxError, match=r"not finished after 0\.3 s"):
        pull_image(store, f"{server.host}/team/app:1", timeout_s=0.3)
    assert nothing_is_left(store)


@pytest.mark.parametrize("ref", ["team/app:none", f"team/app@sha256:{'0' * 64}"])
def test_what_is_not_there(server: FakeRegistry, store: ImageStore, ref: str) -> None:
    with pytest.raises(UserError, match="no such image"):
        pull_image(store, f"{server.host}/{ref}")


def test_what_is_for_others(server: FakeRegistry, store: ImageStore) -> None:
    server.tags["s390x"] = server.layout.index(server.other)["digest"]
    server.tags["chart"] = server.layout.add_json(
        {"mediaType": MANIFEST, "config": {"mediaType": "application/vnd.helm"}, "layers": []}, MANIFEST
    )["digest"]
    with pytest.raises(UserError, match=f"but for linux/{OTHER_ARCHITECTURE}"):
        pull_image(store, f"{server.host}/team/app:s390x")
    with pytest.raises(UserError, match="not a container image"):
        pull_image(store, f"{server.host}/team/app:chart")


def test_limits_hold_before_the_download(server: FakeRegistry, store: ImageStore) -> None:
    for limits in (ImageLimits(max_bytes=100), ImageLimits(max_layers=1)):
        with pytest.raises(UserError, match=r"ImageLimits\.max"):
            pull_image(store, f"{server.host}/team/app:1", limits=limits)
    assert not any("blobs" in path for path, _ in server.requests)


def test_a_document_without_end(server: FakeRegistry, store: ImageStore) -> None:
    huge = json.dumps({"mediaType": MANIFEST, "pad": "x" * (5 << 20)}).encode()
    server.layout.blobs[digest_of(huge)] = huge
    with pytest.raises(SandboxError, match="a document of more than"):
        pull_image(store, f"{server.host}/team/app@{digest_of(huge)}")
