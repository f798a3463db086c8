"""What is said to whom: TLS, logins and redirects, with a registry of answers in memory."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from burnish.errors import SandboxError, UserError
from burnish.sandbox.images import registry
from burnish.sandbox.images.reference import parse_reference
from burnish.sandbox.images.registry import Registry
from tests.image_sources import MANIFEST, digest_of

BODY = json.dumps({"mediaType": MANIFEST}).encode()
Answer = Callable[[httpx.Request], httpx.Response]


async def fetch(name: str, answer: Answer) -> tuple[list[httpx.Request], tuple[bytes, str]]:
    """Reads a manifest; what was asked, and what came."""
    seen: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        whole = answer(request)

        async def pieces() -> AsyncIterator[bytes]:  # unread yet, as from a socket
            yield whole.content

        return httpx.Response(whole.status_code, headers=whole.headers, content=pieces())

    async with Registry(parse_reference(name)) as one:
        await one._client.aclose()
        one._client = httpx.AsyncClient(transport=httpx.MockTransport(note))
        return seen, await one.manifest("1")


@pytest.fixture(autouse=True)
def login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "RETRY_S", 0.001)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    entry = {"auth": base64.b64encode(b"me:secret").decode()}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"https://index.docker.io/v1/": entry, "r.io": entry}}))


def challenge(header: str) -> httpx.Response:
    return httpx.Response(401, headers={"WWW-Authenticate": header})


def good(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=BODY, headers={"Docker-Content-Digest": digest_of(BODY)})


async def test_docker_hub_is_asked_at_its_own_address() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "auth.docker.io":
            return httpx.Response(200, json={"token": "t"})
        if "Authorization" not in request.headers:
            return challenge('Bearer realm="https://auth.docker.io/token",service="registry.docker.io"')
        return good(request)

    seen, (data, digest) = await fetch("python", answer)
    assert (data, digest) == (BODY, digest_of(BODY))
    assert [str(request.url).split("?")[0] for request in seen] == [
        "https://registry-1.docker.io/v2/library/python/manifests/1",
        "https://auth.docker.io/token",
        "https://registry-1.docker.io/v2/library/python/manifests/1",
    ]
    assert seen[1].url.params["scope"] == "repository:library/python:pull"
    assert seen[1].headers["Authorization"].startswith("Basic ")
    assert seen[2].headers["Authorization"] == "Bearer t"


async def test_basic_authentication() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return good(request) if "Authorization" in request.headers else challenge('Basic realm="r"')

    seen, _ = await fetch("r.io/x", answer)
    assert base64.b64decode(seen[1].headers["Authorization"].removeprefix("Basic ")) == b"me:secret"
    with pytest.raises(UserError, match="denies access"):
        await fetch("stranger.io/x", answer)


async def test_a_redirect_away_from_tls_is_not_followed() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.scheme == "https"
        return httpx.Response(302, headers={"Location": "http://169.254.169.254/"})

    with pytest.raises(SandboxError, match="away from TLS"):
        await fetch("r.io/x", answer)


@pytest.mark.parametrize("target", ["https://cdn.io/y", "https://r.io:444/y"])
async def test_a_redirect_elsewhere_goes_without_the_login(target: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if str(request.url) == target:
            return good(request)
        if "Authorization" not in request.headers:
            return challenge('Basic realm="r"')
        return httpx.Response(307, headers={"Location": target})

    seen, _ = await fetch("r.io/x", answer)
    assert [("Authorization" in request.headers) for request in seen] == [False, True, False]


@pytest.mark.parametrize("realm", ["http://r.io/token", "http://127.0.0.1/token"])
async def test_a_login_without_tls_is_not_made(realm: str) -> None:
    with pytest.raises(SandboxError, match="without TLS"):
        await fetch("r.io/x", lambda request: challenge(f'Bearer realm="{realm}"'))


@pytest.mark.parametrize("token", ["a\r\nX: y", "", None, 3])
async def test_tokens_that_are_none(token: object) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": token})
        return challenge('Bearer realm="https://r.io/token"')

    with pytest.raises(SandboxError, match="without a token"):
        await fetch("r.io/x", answer)


@pytest.mark.parametrize("header", ["", "Bearer", "Negotiate", 'Bearer scope="x"'])
async def test_challenges_that_cannot_be_met(header: str) -> None:
    with pytest.raises(UserError, match="denies access"):
        await fetch("r.io/x", lambda request: challenge(header))


async def test_a_token_that_does_not_help_is_asked_for_once() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": "t"})
        return challenge('Bearer realm="https://r.io/token"')

    with pytest.raises(UserError, match="denies access"):
        await fetch("r.io/x", answer)
