from __future__ import annotations

import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import scripted

from chaos.agent.http1 import PARSERS
from chaos.engine.pyz import build_pyz

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(params=list(PARSERS))
def parser(request: pytest.FixtureRequest) -> str:
    """Each HTTP parser that is installed."""
    return request.param


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(["openssl", "req", *made, *names, *files], check=True, capture_output=True)
    (folder / "both.pem").write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return folder / "both.pem"


@pytest.fixture(scope="session")
def server_tls(certificate: Path) -> ssl.SSLContext:
    """The server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as one file."""
    return build_pyz(tmp_path_factory.mktemp("pyz") / "agent.pyz")


@pytest.fixture(params=["source", "bare"])
def start(request: pytest.FixtureRequest, pyz: Path, tmp_path: Path) -> Callable[..., scripted.Process]:
    """Start an agent: from source with the fast libraries, and as one file that finds nothing but itself."""
    command = scripted.SOURCE if request.param == "source" else [sys.executable, "-S", str(pyz)]

    def make(url: str, **values: object) -> scripted.Process:
        config = {
            "group": "g",
            "run": "t",
            "base_url": url,
            "api": "chat",
            "phase_file": str(tmp_path / "phases"),
            "phase_slots": 16,
            **values,
        }
        return scripted.Process(command, config)

    return make
