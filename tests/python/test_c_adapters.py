"""Adapters through the C API: as the engines of Python answer with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapter_folders import write_demo_adapters
from c_library import CEngine, CError

from mlc_native import MLCEngine
from mlc_native.support.model_source import demo_model_folder

INVALID_REQUEST, INVALID_CONFIG, LOAD_ERROR = 2, 4, 5  # MLCN_...
SETTINGS: dict[str, Any] = {"max_num_sequence": 4, "num_threads": 1, "dtype": "float32"}
BODY: dict[str, Any] = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 16}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_demo_adapters(tmp_path_factory.mktemp("adapters"))


def test_the_answers_are_pythons(folders: dict[str, Path]) -> None:
    with MLCEngine("demo", "cpu", adapters=folders, verbose=False, **SETTINGS) as python:
        expected = {
            name: python.completions.create(**BODY, adapter=name).choices[0].text
            for name in ("", "a", "b")
        }
    assert len(set(expected.values())) == 3
    with CEngine(demo_model_folder(), adapters=[f"a={folders['a']}"], **SETTINGS) as engine:
        engine.load_adapter("b", folders["b"])

        def text(**fields: Any) -> str:
            [answer] = engine.answers({**BODY, **fields})
            return answer.text

        assert text() == expected[""]
        assert {name: text(adapter=name) for name in expected} == expected
        engine.unload_adapter("a")
        with pytest.raises(CError) as error:
            text(adapter="a")
        assert (error.value.code, error.value.field) == (INVALID_REQUEST, "adapter")
        assert text(adapter="b") == expected["b"]
        assert text(adapter=None) == expected[""]


def test_what_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with CEngine(demo_model_folder(), **SETTINGS) as engine:
        before = engine.answers(BODY)
        engine.load_adapter("a", folders["a"])
        for name in ("", "a"):
            with pytest.raises(CError) as error:
                engine.load_adapter(name, folders["b"])
            assert (error.value.code, error.value.field) == (INVALID_REQUEST, "adapter")
        for name in ("", "b"):
            with pytest.raises(CError) as error:
                engine.unload_adapter(name)
            assert (error.value.code, error.value.field) == (INVALID_REQUEST, "adapter")
        with pytest.raises(CError) as error:
            engine.load_adapter("b", tmp_path)
        assert error.value.code == LOAD_ERROR
        assert "adapter_config.json" in str(error.value)
        for adapter in ("b", 5):
            with pytest.raises(CError) as error:
                engine.answers({**BODY, "adapter": adapter})
            assert (error.value.code, error.value.field) == (INVALID_REQUEST, "adapter")
        assert engine.answers(BODY) == before
    for setting in (["a"], 5, [f"a={folders['a']}", f"a={folders['b']}"]):
        with pytest.raises(CError) as error:
            CEngine(demo_model_folder(), adapters=setting, **SETTINGS)
        assert (error.value.code, error.value.field) == (INVALID_CONFIG, "adapters")
