"""Chat templates: conversations to text and ids, as `apply_chat_template` of transformers 5 does.

Follows `transformers.utils.chat_template_utils` in what a template sees; tests compare the two on real templates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toktier_jax.errors import InputError, UnsupportedError
from toktier_jax.host.chat_template import Span, render_template
from toktier_jax.results import Encoding

_REASONING = ("reasoning_content", "thinking", "reasoning")
_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_NOT_TAKEN = ("sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors", "tokenizer_kwargs")


def apply(
    templates: Mapping[str, str],
    special_tokens: Mapping[str, str],
    encode: Callable[[str], Encoding],
    conversation: Any,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    chat_template: str | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool | str = False,
    tokenize: bool = True,
    return_dict: bool = True,
    return_assistant_tokens_mask: bool = False,
    **variables: Any,
) -> Any:
    """What `apply_chat_template` returns, for one conversation or a list of them.

    A str with `tokenize=False`; a list of ids with `return_dict=False`; else a dictionary with "input_ids",
    "attention_mask" and, if asked for, "assistant_masks" (from `{% generation %}` tags). The template sees `variables`.
    """
    _refuse_unknown(variables)
    if return_assistant_tokens_mask and not (tokenize and return_dict):
        raise InputError("return_assistant_tokens_mask needs tokenize=True and return_dict=True")
    template = choose_template(templates, chat_template, tools)
    batched = _is_batch(conversation)
    rendered = [
        render(
            template,
            each,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables={**special_tokens, **variables},
        )
        for each in (conversation if batched else [conversation])
    ]
    if not tokenize:
        texts = [text for text, _ in rendered]
        return texts if batched else texts[0]
    encodings = [encode(text) for text, _ in rendered]
    columns = {"input_ids": [encoding.ids.tolist() for encoding in encodings]}
    columns["attention_mask"] = [[1] * len(ids) for ids in columns["input_ids"]]
    if return_assistant_tokens_mask:
        columns["assistant_masks"] = [
            token_mask(spans, encoding.char_spans.tolist())
            for (_, spans), encoding in zip(rendered, encodings, strict=True)
        ]
    result = columns if batched else {name: column[0] for name, column in columns.items()}
    return result if return_dict else result["input_ids"]


def _refuse_unknown(variables: dict[str, Any]) -> None:
    """Options of transformers that are not taken over must not become variables of the template."""
    for name in _NOT_TAKEN:
        if variables.pop(name, None) not in (None, False):
            raise UnsupportedError(f"apply_chat_template: {name} is not supported; render the text, then encode it")


def _is_batch(conversation: Any) -> bool:
    if not isinstance(conversation, list | tuple) or not conversation:
        return False
    return isinstance(conversation[0], list | tuple) or hasattr(conversation[0], "messages")


def render(
    template: str,
    messages: Sequence[Any],
    *,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool | str = False,
    variables: Mapping[str, Any],
) -> tuple[str, list[Span]]:
    """One conversation's text, and the character spans inside `{% generation %}` tags.

    Raises InputError for messages that the template refuses (`raise_exception`) and for a damaged template.
    """
    if continue_final_message and add_generation_prompt:
        raise InputError("continue_final_message and add_generation_prompt exclude each other")
    chat = [_alias_reasoning(_message(item)) for item in _plain_messages(messages)]
    if not chat:
        raise InputError("the conversation is empty; give at least one message")
    final = _open_final_message(chat, continue_final_message, template) if continue_final_message else None
    names = {
        "messages": chat,
        "tools": None if tools is None else [_plain(_tool(tool)) for tool in tools],
        "documents": _plain(documents),
        "add_generation_prompt": add_generation_prompt,
        **_plain(dict(variables)),
    }
    text, spans = render_template(template, names)
    return (text if final is None else _cut_final_message(text, final)), spans


def _plain_messages(messages: Any) -> list[Any]:
    messages = getattr(messages, "messages", messages)
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InputError(f"messages must be a list of messages, not {type(messages).__name__}")
    return list(messages)


def _message(message: Any) -> dict[str, Any]:
    """A message as a dictionary of plain data, without keys whose value is None."""
    plain = _plain(message)
    if not isinstance(plain, dict):
        raise InputError(
            f"a message must be a dictionary, a dataclass or a pydantic model, not {type(message).__name__}"
        )
    return {key: value for key, value in plain.items() if value is not None}


def _alias_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Templates read a message's reasoning under one of several names."""
    found = next((message[key] for key in _REASONING if key in message), None)
    return message if found is None else {"thinking": found, **message, "reasoning_content": found}


def _plain(value: Any) -> Any:
    """`value` as JSON-like data, so that a template, which is foreign code, meets no methods but those."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return getattr(kind, f"__{kind.__name__}__")(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(dump := getattr(value, "model_dump", None)):
        return _plain(dump())
    if callable(item := getattr(value, "item", None)) and getattr(value, "shape", None) == ():
        return _plain(item())
    return f"<{type(value).__name__}>"


def _tool(tool: Any) -> dict[str, Any]:
    """A JSON schema; a function is described by transformers, where that is installed."""
    if isinstance(tool, dict):
        return tool
    if not callable(tool):
        raise InputError(f"a tool must be a JSON schema as a dictionary, or a function, not {type(tool).__name__}")
    try:
        from transformers.utils.chat_template_utils import get_json_schema
    except ImportError as error:
        raise InputError("functions as tools need transformers; install it, or pass their JSON schemas") from error
    return get_json_schema(tool)


def _open_final_message(chat: list[dict[str, Any]], key: bool | str, template: str) -> str:
    """Tags the end of the text that is to be continued, and returns that text."""
    key = key if isinstance(key, str) else "content"
    final = chat[-1].get(key)
    if final is None:
        raise InputError(f"continue_final_message: the final message has no {key!r} to continue")
    keys = [key] if key not in _REASONING else [name for name in _REASONING if chat[-1].get(name) == final]
    if not any(name in template for name in keys):
        raise InputError(f"continue_final_message: the chat template does not read {key!r}")
    if isinstance(final, list | tuple):
        block = next((block for block in reversed(final) if "text" in block), None)
        if block is None:
            raise InputError("continue_final_message: the final message has no text to continue")
        final = block["text"]
        block["text"] += _CONTINUE_TAG
    else:
        for name in keys:
            chat[-1][name] += _CONTINUE_TAG
    return final


def _cut_final_message(text: str, final: str) -> str:
    """The text up to the tag; where the template trimmed the message, without the space before it."""
    tag = _CONTINUE_TAG.strip()
    if final.strip() not in text or tag not in text:
        raise InputError("continue_final_message: the final message does not appear in the rendered chat")
    at = text.rindex(tag)
    kept = text[at : at + len(_CONTINUE_TAG)] == _CONTINUE_TAG
    return text[:at] if kept else text[:at].rstrip()


def choose_template(templates: Mapping[str, str], template: str | None, tools: Any) -> str:
    """The template to render: the one given (a name or a text), else `tool_use` where tools are, else `default`."""
    if template is not None:
        return templates.get(template, template)
    if tools is not None and "tool_use" in templates:
        return templates["tool_use"]
    if "default" in templates:
        return templates["default"]
    if templates:
        raise InputError(f"there are several chat templates; pass chat_template= one of {sorted(templates)}")
    raise InputError("this tokenizer has no chat template; pass chat_template=")


def token_mask(spans: Sequence[Span], offsets: Sequence[Span]) -> list[int]:
    """1 for each token that overlaps one of `spans`, in characters."""
    return [int(any(start < stop and end > begin for begin, stop in spans)) for start, end in offsets]
