"""What `load` refuses, and how it says so: every message names the file, what is wrong in it, and what to do."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from toktier_jax import models
from toktier_jax.errors import InputError, SpecError, UnsupportedError
from toktier_jax.models import huggingface

from . import tiny, tiny_gguf


def change_config(directory: Path, **changes: Any) -> Path:
    file = directory / "config.json"
    data = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in data.items() if value is not ...}))
    return directory


def change_weights(directory: Path, name: str, **changes: np.ndarray | None) -> Path:
    """Rewrites the weights of checkpoint `name`; None drops one. Dots are written as __."""
    weights = tiny.weights(name) | {key.replace("__", "."): value for key, value in changes.items()}
    save_file({key: value for key, value in weights.items() if value is not None}, directory / "model.safetensors")
    return directory


def test_shards_are_the_same_model(tmp_path: Path) -> None:
    whole = models.load(tiny.write("llama", tmp_path / "whole"))
    directory = tiny.write("llama", tmp_path / "sharded")
    (directory / "model.safetensors").unlink()
    weights, weight_map = tiny.weights("llama"), {}
    for i, name in enumerate(weights):
        weight_map[name] = f"model-{i % 2 + 1:05}-of-00002.safetensors"
    for file in set(weight_map.values()):
        save_file({name: weights[name] for name in weights if weight_map[name] == file}, directory / file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    sharded = models.load(directory)
    for a, b in zip(*map(_leaves, (whole, sharded)), strict=True):
        np.testing.assert_array_equal(a, b)
    (directory / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(SpecError, match=r"00002-of-00002\.safetensors \(listed in .*\) does not exist"):
        models.load(directory)


def test_a_damaged_shard_leaves_no_other_one_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, opened = tiny.write("llama", tmp_path), []

    class Watched(contextlib.ExitStack):
        """A handle that notes whether it was closed."""

        def __init__(self, file: Path) -> None:
            super().__init__()
            self.handle, self.closed = self.enter_context(open_file(file)), False
            self.callback(lambda: setattr(self, "closed", True))
            opened.append(self)

        def keys(self) -> list[str]:
            return self.handle.keys()

    open_file = huggingface._open_safetensors
    monkeypatch.setattr(huggingface, "_open_safetensors", Watched)
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (directory / "model.safetensors").rename(directory / names[0])
    (directory / names[1]).write_bytes(b"1234567890")
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": names[0], "b": names[1]}}))
    with pytest.raises(SpecError, match=f"{names[1]}: not a readable safetensors file"):
        models.load(directory)
    assert [handle.closed for handle in opened] == [True]
    index.write_text(json.dumps({"weight_map": names}))
    with pytest.raises(SpecError, match="weight_map must give a file for each weight"):
        models.load(directory)


def test_names_without_the_base_prefix_and_old_buffers_are_read(tmp_path: Path) -> None:
    """As in the first GPT-2 checkpoints."""
    directory = tiny.write("gpt2", tmp_path)
    weights = {key.removeprefix("transformer."): value for key, value in tiny.weights("gpt2").items()}
    weights |= {f"h.{i}.attn.bias": np.ones((1, 1, 8, 8), np.float32) for i in range(tiny.LAYERS)}
    weights["lm_head.weight"] = weights["wte.weight"].copy()
    expected = models.load(directory)
    save_file(weights, directory / "model.safetensors")
    for a, b in zip(*map(_leaves, (expected, models.load(directory))), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bfloat16_and_float16_files_are_read_exactly(tmp_path: Path) -> None:
    import ml_dtypes

    directory = tiny.write("llama", tmp_path)
    for dtype in (ml_dtypes.bfloat16, np.float16):
        weights = {key: value.astype(dtype) for key, value in tiny.weights("llama").items()}
        save_file(weights, directory / "model.safetensors")
        lm = models.load(directory)
        assert (np.asarray(lm.params["embed"][...]) == weights["model.embed_tokens.weight"].astype(np.float32)).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model_type": "mamba"}, UnsupportedError, "model_type 'mamba' is not supported; supported are llama, qwen2"),
        ({"model_type": "gemma3"}, UnsupportedError, "only its text model is"),
        ({"model_type": ...}, SpecError, "config.json: the key 'model_type' is missing"),
        ({"num_hidden_layers": ...}, SpecError, "config.json: the key 'num_hidden_layers' is missing"),
        ({"num_hidden_layers": 0}, SpecError, "num_hidden_layers is 0; expected a whole number of at least 1"),
        ({"num_attention_heads": 0}, SpecError, "num_attention_heads is 0"),
        ({"hidden_size": "32"}, SpecError, "hidden_size is '32'"),
        ({"intermediate_size": 1.5}, SpecError, r"hidden is 1\.5"),
        ({"rope_theta": -1}, SpecError, "rotary base -1"),
        ({"num_key_value_heads": 3}, SpecError, "4 attention heads cannot share 3 key/value heads"),
        ({"head_dim": 7}, SpecError, "an even head size, not 7"),
        ({"hidden_act": "relu"}, UnsupportedError, "hidden_act 'relu' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, UnsupportedError, "rotary scaling 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, SpecError, "rotary scaling 'linear' without 'factor'"),
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, UnsupportedError, "partial_rotary_factor"),
        ({"quantization_config": {"bits": 4}}, UnsupportedError, "quantization_config = {'bits': 4} is not supported"),
        ({"num_hidden_layers": 3}, SpecError, r"layers\.2\.input_layernorm\.weight, .* and 6 more weights are missing"),
        ({"num_hidden_layers": 1}, SpecError, r"layers\.1\..* more weights are not used"),
        ({"vocab_size": 62}, SpecError, r"embed_tokens\.weight gives embed the shape \[61, 32\], .* \[62, 32\]"),
    ],
)
def test_configurations_that_do_not_fit_are_named(
    changes: dict, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        models.load(change_config(tiny.write("llama", tmp_path), **changes))


def test_other_families_refuse_what_they_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"final_logit_softcapping = 30\.0 is not supported"):
        models.load(change_config(tiny.write("gemma3", tmp_path), final_logit_softcapping=30.0))
    with pytest.raises(SpecError, match="layer_types must give"):
        models.load(change_config(tiny.write("gemma3", tmp_path), layer_types=["full_attention"]))
    with pytest.raises(SpecError, match="the key 'sliding_window' is missing"):
        models.load(change_config(tiny.write("gemma3", tmp_path), sliding_window=None))
    with pytest.raises(UnsupportedError, match="scale_attn_by_inverse_layer_idx = True is not supported"):
        models.load(change_config(tiny.write("gpt2", tmp_path), scale_attn_by_inverse_layer_idx=True))


def test_weights_that_are_missing_misshapen_or_too_many_are_named(tmp_path: Path) -> None:
    directory = tiny.write("llama", tmp_path)
    with pytest.raises(SpecError, match=r"lm_head\.weight is missing. The download is incomplete"):
        models.load(change_weights(directory, "llama", lm_head__weight=None))
    with pytest.raises(SpecError, match=r"lm_head\.weight gives head\.weight the shape \[3, 32\]"):
        models.load(change_weights(directory, "llama", lm_head__weight=np.zeros((3, 32), np.float32)))
    extra = {"model__layers__0__self_attn__q_norm__weight": np.zeros(8, np.float32)}
    with pytest.raises(SpecError, match=r"layers\.0\.self_attn\.q_norm\.weight is not used"):
        models.load(change_weights(directory, "llama", **extra))
    with pytest.raises(UnsupportedError, match=r"lm_head\.weight is stored as int8"):
        models.load(change_weights(directory, "llama", lm_head__weight=np.zeros((61, 32), np.int8)))
    gpt2 = tiny.write("gpt2", tmp_path / "gpt2")
    odd = {"transformer__h__0__attn__c_attn__weight": np.zeros((32, 97), np.float32)}
    with pytest.raises(SpecError, match=r"h\.0\.attn\.c_attn\.weight has an unexpected shape"):
        models.load(change_weights(gpt2, "gpt2", **odd))


def test_files_that_are_absent_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        models.load(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match=r"notes\.txt is not a GGUF file"):
        models.load(tmp_path / "notes.txt")
    with pytest.raises(SpecError, match=r"config\.json does not exist"):
        models.load(tmp_path)
    directory = tiny.write("llama", tmp_path / "model")
    with pytest.raises(InputError, match="dtype='float64'"):
        models.load(directory, dtype="float64")
    (directory / "model.safetensors").write_bytes(b"1234567890")
    with pytest.raises(SpecError, match="not a readable safetensors file"):
        models.load(directory)
    (directory / "model.safetensors").unlink()
    with pytest.raises(SpecError, match=r"model\.safetensors does not exist"):
        models.load(directory)
    (directory / "config.json").write_text("{")
    with pytest.raises(SpecError, match="not valid JSON"):
        models.load(directory)
    (directory / "config.json").write_text("[]")
    with pytest.raises(SpecError, match="expected a JSON object"):
        models.load(directory)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"general__architecture": "mamba"}, UnsupportedError, "architecture 'mamba' is not supported; supported are"),
        ({"split__count": 2}, UnsupportedError, "one part of a split GGUF"),
        ({"expert_count": 8}, UnsupportedError, "mixture-of-experts"),
        ({"attention__head_count": [4, 2]}, UnsupportedError, "layers of different width"),
        ({"rope__dimension_count": 4}, UnsupportedError, r"llama\.rope\.dimension_count is 4 where heads have 8"),
        ({"rope__scaling__type": "yarn"}, UnsupportedError, "rotary scaling 'yarn'"),
        ({"embedding_length": 64}, SpecError, r"attn_k\.weight gives .* \[16, 32\], the configuration \[16, 64\]"),
        ({"block_count": 3}, SpecError, r"blk\.2\.attn_k\.weight, .* more weights are missing"),
        ({"drop": "blk.1.ffn_up.weight"}, SpecError, r"blk\.1\.ffn_up\.weight is missing"),
        ({"drop": "token_embd.weight"}, SpecError, r"token_embd\.weight is missing: the file holds no language model"),
    ],
)
def test_gguf_files_that_do_not_fit_are_named(
    changes: dict, error: type[Exception], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("gguf", reason="the extra `gguf` is not installed")
    with pytest.raises(error, match=message):
        models.load(tiny_gguf.write("llama", tmp_path / "model.gguf", **changes))


def test_a_damaged_gguf_is_named(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra `gguf` is not installed")
    file = tiny_gguf.write("llama", tmp_path / "model.gguf")
    data = file.read_bytes()
    for size in (8, 200, len(data) - 500):
        file.write_bytes(data[:size])
        with pytest.raises(SpecError, match="not a readable GGUF file"):
            models.load(file)


def _leaves(lm: models.CausalLM) -> list[Any]:
    import jax

    return jax.tree.leaves(lm.params)
