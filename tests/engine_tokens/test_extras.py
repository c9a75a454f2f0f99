"""What is not installed is named with the extra that brings it."""

from __future__ import annotations

import sys

import pytest

from turnwire.server.engine.tokens.grpc_channel import engine_stubs
from turnwire.server.engine.tokens.port import EngineStartError
from turnwire.server.engine.tokens.sglang_grpc import SglangGrpcEngine
from turnwire.server.engine.tokens.vllm_http import VllmHttpEngine


def test_missing_stubs_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "smg_grpc_proto.generated.sglang_scheduler_pb2", None)
    with pytest.raises(EngineStartError, match=r"pip install 'turnwire\[sglang\]'"):
        SglangGrpcEngine("127.0.0.1:1")


def test_stubs_that_do_not_go_with_protobuf_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "broken_pb2.py").write_text("raise RuntimeError('gencode 7 runtime 6')", encoding="utf-8")
    package = sys.modules.get("smg_grpc_proto.generated") or __import__("smg_grpc_proto.generated").generated
    monkeypatch.setattr(package, "__path__", [str(folder)])
    with pytest.raises(EngineStartError, match=r"pip install -U 'turnwire\[vllm\]' \(gencode 7 runtime 6\)"):
        engine_stubs("broken_pb2", "vllm")


def test_a_missing_http_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(EngineStartError, match=r"pip install 'turnwire\[server\]'"):
        VllmHttpEngine("http://127.0.0.1:1/v1")
