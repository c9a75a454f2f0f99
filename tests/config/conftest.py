from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from turnwire.server import settings
from turnwire.server.config import ConfigError, ServerConfig, TlsConfig
from turnwire.server.settings import load_config

LoadToml = Callable[..., ServerConfig]
Mistakes = Callable[..., list[str]]


@pytest.fixture
def load_toml(tmp_path: Path) -> LoadToml:
    """Loads the text of a TOML file, beside flags (with _ for . in keys) and variables."""

    def load(text: str, environ: dict[str, str] | None = None, **flags: object) -> ServerConfig:
        path = tmp_path / "turnwire.toml"
        path.write_text(text, encoding="utf-8")
        return load_config({"config": str(path), **flags}, environ or {})

    return load


@pytest.fixture
def mistakes(tmp_path: Path) -> Mistakes:
    """Returns the mistakes in flags, variables and the text of a TOML file, without the file's folder."""

    def find(text: str = "", environ: dict[str, str] | None = None, **flags: object) -> list[str]:
        if text:
            path = tmp_path / "turnwire.toml"
            path.write_text(text, encoding="utf-8")
            flags["config"] = str(path)
        with pytest.raises(ConfigError) as caught:
            load_config(flags, environ or {})
        return [problem.replace(f"{tmp_path}/", "") for problem in caught.value.problems]

    return find


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder of files that are taken for certificates."""

    def accept(tls: TlsConfig) -> None:
        del tls

    monkeypatch.setattr(settings, "check_certificates", accept)
    for name in ("server.pem", "server.key", "clients.pem"):
        (tmp_path / name).write_text("x")
    return tmp_path
