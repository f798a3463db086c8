"""Reading from a registry: the pull half of the OCI distribution API, with token authentication.

The registry is not trusted: documents are bounded, blobs are bounded by what their manifest says and compared with
their digest, credentials go over TLS only (a registry on this machine excepted) and never to where a redirect points.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx

from burnish import __version__
from burnish.errors import SandboxError, UserError
from burnish.sandbox.images.credentials import stored_credentials
from burnish.sandbox.images.manifest import INDEX_TYPES, MANIFEST_TYPES, MAX_JSON_BYTES, parse_json
from burnish.sandbox.images.reference import DOCKER_HUB, DOCKER_HUB_API, Reference

READ_TIMEOUT_S = 30.0  # of silence
MAX_REDIRECTS = 5
ATTEMPTS = 3  # for what may go better the next time
RETRY_S = 0.5  # before the second attempt, doubled for each one after
_PIECE_BYTES = 1 << 18
_T = TypeVar("_T")
_PASSING = (408, 429, 500, 502, 503, 504)
_CHALLENGE = re.compile(r'([a-zA-Z]+)="([^"]*)"')


class _Passing(Exception):
    """A failure that may not happen again."""


class Registry:
    """One repository of a registry. Use it with `async with`."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        host = DOCKER_HUB_API if reference.registry == DOCKER_HUB else reference.registry
        self._scheme = "http" if _is_local(host) else "https"
        self._base = httpx.URL(f"{self._scheme}://{host}/v2/{reference.repository}/")
        self._authorization: str | None = None
        self._login = asyncio.Lock()  # several layers at once need one token
        self._client = httpx.AsyncClient(
            timeout=READ_TIMEOUT_S,
            trust_env=self._scheme == "https",
            headers={"User-Agent": f"burnish/{__version__}", "Accept-Encoding": "identity"},
        )

    async def __aenter__(self) -> "Registry":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.aclose()

    async def manifest(self, wanted: str) -> tuple[bytes, str]:
        """A manifest or an index by tag or digest: its bytes and its digest.

        Raises UserError when there is none or access is denied, SandboxError when the registry fails or lies.
        """

        async def once() -> tuple[bytes, str]:
            accept = {"Accept": ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))}
            async with self._get(f"manifests/{wanted}", accept) as response:
                data = await _bounded(response, MAX_JSON_BYTES)
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            promised = wanted if wanted.startswith("sha256:") else response.headers.get("Docker-Content-Digest", digest)
            if digest != promised:
                raise _Passing(f"the manifest {promised[:100]} came with the digest {digest}")
            return data, digest

        return await self._retried(once)

    async def blob(self, digest: str, size: int, path: Path, tell: Callable[[int], None]) -> None:
        """Writes a blob to a file, checked against its size and digest. `tell` is told of bytes as they come.

        Raises as `manifest` does, and OSError when the file cannot be written.
        """

        async def once() -> None:
            found, num_bytes, is_whole = hashlib.sha256(), 0, False
            try:
                with path.open("wb") as file:
                    async with self._get(f"blobs/{digest}", {}) as response:
                        async for data in response.aiter_raw(_PIECE_BYTES):
                            num_bytes += len(data)
                            tell(len(data))
                            if num_bytes > size:
                                break
                            file.write(data)
                            found.update(data)
                is_whole = num_bytes == size and f"sha256:{found.hexdigest()}" == digest
            finally:
                if not is_whole:
                    tell(-num_bytes)  # none of it counts
            if not is_whole:
                raise _Passing(f"the blob {digest} came damaged")

        await self._retried(once)

    async def _retried(self, once: Callable[[], Awaitable[_T]]) -> _T:
        for attempt in range(ATTEMPTS):
            try:
                return await once()
            except (_Passing, httpx.HTTPError) as problem:
                if attempt == ATTEMPTS - 1:
                    raise SandboxError(
                        f"pull {self._reference.name}: {str(problem) or type(problem).__name__}", evidence=repr(problem)
                    ) from problem
            await asyncio.sleep(RETRY_S * 2**attempt)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _get(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """A response with a body to read: redirects followed, logged in when asked to."""
        used = self._authorization
        async with self._follow(self._base.join(path), headers) as response:
            if response.status_code != 401:
                self._judge(response)
                yield response
                return
            challenge = response.headers.get("WWW-Authenticate", "")
        async with self._login:
            if self._authorization == used:  # else another request has logged in meanwhile
                self._authorization = await self._log_in(challenge)
        async with self._follow(self._base.join(path), headers) as response:
            self._judge(response)
            yield response

    @asynccontextmanager
    async def _follow(self, url: httpx.URL, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        for _ in range(MAX_REDIRECTS):
            is_home = (url.scheme, url.host, url.port) == (self._base.scheme, self._base.host, self._base.port)
            own = {"Authorization": self._authorization} if is_home and self._authorization else {}
            async with self._client.stream("GET", url, headers={**headers, **own}) as response:
                if response.next_request is None:
                    yield response
                    return
                url = response.next_request.url
            if url.scheme != self._scheme and self._scheme == "https":
                raise SandboxError(f"pull {self._reference.name}: the registry leads away from TLS, to {url.host}")
        raise SandboxError(f"pull {self._reference.name}: more than {MAX_REDIRECTS} redirects")

    async def _log_in(self, challenge: str) -> str:
        """The Authorization header that a 401 asks for. Raises UserError when we have nothing to say."""
        scheme, _, rest = challenge.partition(" ")
        login = stored_credentials(self._reference.registry)
        auth = httpx.BasicAuth(*login) if login is not None else None
        if scheme.lower() == "basic" and auth is not None:
            return str(next(auth.auth_flow(httpx.Request("GET", self._base))).headers["Authorization"])
        asked = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in asked:
            raise self._denied()
        realm = httpx.URL(asked["realm"])
        if realm.scheme != "https" and not (self._scheme == "http" and _is_local(realm.netloc.decode())):
            raise SandboxError(f"pull {self._reference.name}: the registry wants a login without TLS at {realm.host}")
        query = {
            "scope": asked.get("scope", f"repository:{self._reference.repository}:pull"),
            **({"service": asked["service"]} if "service" in asked else {}),
        }
        url = realm.copy_merge_params(query)
        async with self._client.stream("GET", url, auth=auth) as response:
            self._judge(response)
            document = parse_json(await _bounded(response, MAX_JSON_BYTES), f"the token of {realm.host}")
        token = document.get("token") or document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise SandboxError(f"pull {self._reference.name}: {realm.host} answered without a token")
        return f"Bearer {token}"

    def _judge(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            raise self._denied()
        if status == 404:
            raise UserError("the registry has no such image", where=self._reference.name, fix="check name and tag")
        if status in _PASSING:
            raise _Passing(f"the registry answered {status}")
        if status != 200:
            raise SandboxError(f"pull {self._reference.name}: the registry answered {status}")

    def _denied(self) -> UserError:
        return UserError(
            "the registry denies access, or has no such image",
            where=self._reference.name,
            fix=f"check the name; for a private one: docker login {self._reference.registry} (credential helpers are "
            "not run, the login must be in config.json)",
        )


async def _bounded(response: httpx.Response, max_bytes: int) -> bytes:
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > max_bytes:
            raise SandboxError(f"pull: {response.url.host} sent a document of more than {max_bytes} bytes")
    return bytes(data)


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return name in ("localhost", "[::1]") or re.fullmatch(r"127(\.\d{1,3}){3}", name) is not None
