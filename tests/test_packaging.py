"""What is installed: one namespace over four roots, complete wheels, and a base install that needs no extras."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = {"protos": ("v1",), "server": ("server",), "client": ("bridge", "client"), "bench": ("bench",)}
PACKAGES = tuple(package for packages in ROOTS.values() for package in packages)
EXTRAS = (
    "aiohttp",
    "click",
    "cryptography",
    "grpc_health",
    "grpc_reflection",
    "jsonschema",
    "openai",
    "prometheus_client",
    "pydantic",
    "regex",
    "rich",
    "tiktoken",
    "uvloop",
)


def _blocking(modules: tuple[str, ...]) -> str:
    """Returns code that makes modules look as if they were not installed."""
    return f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


BLOCKED = _blocking(EXTRAS)
BRIDGE = ("aiohttp", "click", "rich", "uvloop")
"""Of `EXTRAS`, what the extra `bridge` brings."""
BUILD = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"


def _python(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    built = _python(BUILD, str(folder), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(folder / built.stdout.split()[-1])


@pytest.fixture(scope="module")
def names(wheel: zipfile.ZipFile) -> list[str]:
    return wheel.namelist()


def test_the_namespace_belongs_to_nobody() -> None:
    for root, packages in ROOTS.items():
        folder = ROOT / root / "turnwire"
        assert not (folder / "__init__.py").exists()
        assert all((folder / package / "__init__.py").exists() for package in packages)
        assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == list(packages)


def test_a_wheel_holds_every_module_and_no_stray_one(names: list[str]) -> None:
    packed = {name for name in names if name.endswith((".py", ".pyi"))}
    assert "turnwire/__init__.py" not in packed
    sources = {
        str(path.relative_to(ROOT / root))
        for root in ROOTS
        for pattern in ("*.py", "*.pyi")
        for path in (ROOT / root / "turnwire").rglob(pattern)
    }
    assert packed == sources


def test_a_wheel_holds_the_language_its_stubs_and_its_types(names: list[str]) -> None:
    protos = sorted((ROOT / "protos/turnwire/v1").glob("*.proto"))
    assert len(protos) > 5
    for proto in protos:
        for suffix in (".proto", "_pb2.py", "_pb2.pyi"):
            assert f"turnwire/v1/{proto.stem}{suffix}" in names
    assert "turnwire/v1/responses_service_pb2_grpc.py" in names
    for package in PACKAGES:
        assert f"turnwire/{package}/py.typed" in names


def test_a_wheel_holds_the_data_that_is_read_at_run_time(wheel: zipfile.ZipFile, names: list[str]) -> None:
    scenarios = [path.name for path in (ROOT / "server/turnwire/server/engine/scripted/data").glob("*.toml")]
    assert "demo.toml" in scenarios
    for scenario in scenarios:
        assert f"turnwire/server/engine/scripted/data/{scenario}" in names
    for file in ("play.mjs", "package.json", "package-lock.json"):
        assert f"turnwire/bench/drivers/node/{file}" in names
    (vocabulary,) = (name for name in names if name.startswith("turnwire/server/prompt/data/"))
    assert wheel.getinfo(vocabulary).file_size > 1_000_000
    project = ROOT / "client/turnwire/client/demo/project"
    files = [path for path in project.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(files) > 10
    for path in files:
        if ".pytest_cache" not in path.parts:
            assert str(path.relative_to(ROOT / "client")) in names
    # So that whoever copies it knows under which terms.
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_a_wheel_holds_no_tests_of_ours_and_no_leftovers(names: list[str]) -> None:
    for name in names:
        top, _, rest = name.partition("/")
        assert top == "turnwire" or top.endswith(".dist-info")
        assert "__pycache__" not in name
        assert not name.endswith((".pyc", ".so", ".orig"))
        # The sample project's own tests are what the demo repairs it by.
        if not rest.startswith("client/demo/project/"):
            assert "/tests/" not in name
            assert not name.rpartition("/")[2].startswith(("test_", "conftest"))


def test_the_entry_points_resolve() -> None:
    (script,) = (point for point in entry_points(group="console_scripts") if point.name == "turnwire")
    assert callable(script.load())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["turnwire.commands"]
    assert {point.name for point in entry_points(group="turnwire.commands")} == set(declared)
    for point in entry_points(group="turnwire.commands"):
        assert point.load().name == point.name


def test_the_base_install_speaks_without_any_extra() -> None:
    modules = "turnwire.client, turnwire.client.testing, turnwire.v1.json, turnwire.v1.responses_service_pb2_grpc"
    result = _python(f"{BLOCKED}\nimport {modules}\nprint(len(turnwire.client.__all__))")
    assert (result.returncode, result.stderr) == (0, "")
    assert int(result.stdout) > 10


def test_the_base_install_names_the_extra_that_is_missing() -> None:
    result = _python(f"{BLOCKED}\nfrom turnwire.client.cli import main\nmain()")
    assert (result.returncode, result.stderr) == (2, "Error: the command line needs: pip install 'turnwire[cli]'\n")
    result = _python(f"{BLOCKED}\nimport turnwire.client.agent")
    assert result.returncode == 1
    assert "pip install 'turnwire[agent]'" in result.stderr


def test_a_bridge_needs_its_own_extra_only() -> None:
    others = tuple(module for module in EXTRAS if module not in BRIDGE)
    modules = "turnwire.bridge.cli, turnwire.bridge.app"
    result = _python(f"{_blocking(others)}\nimport {modules}\nprint(turnwire.bridge.cli.bridge.name)")
    assert (result.returncode, result.stdout, result.stderr) == (0, "bridge\n", "")
    missing = ("aiohttp",)
    run = "sys.argv[1:] = ['bridge']\nfrom turnwire.client.cli import main\nmain()"
    result = _python(f"{_blocking(missing)}\n{run}")
    assert (result.returncode, result.stderr) == (2, "Error: turnwire bridge needs: pip install 'turnwire[bridge]'\n")


def test_the_client_brings_nothing_of_the_server() -> None:
    result = _python("import sys, turnwire.client; print(*sys.modules)")
    loaded = {name.split(".")[1] for name in result.stdout.split() if name.startswith("turnwire.")}
    assert loaded == {"client", "v1"}
