"""The Jinja sandbox in which chat templates run: the filters, globals and tags that transformers gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from toktier_jax.errors import InputError

Span = tuple[int, int]


def render_template(template: str, names: dict[str, Any]) -> tuple[str, list[Span]]:
    """The rendered text, and the character spans inside `{% generation %}` tags.

    Raises InputError for what the template refuses (`raise_exception`) or stumbles over, and for a damaged template.
    """
    compiled = _compile(template)
    blocks: list[str] = []
    spans: list[Span] = []
    try:
        with compiled.environment.track(blocks, spans):  # pyright: ignore[reportAttributeAccessIssue]  # of _Generation
            for block in compiled.generate(**names):
                blocks.append(block)
    except jinja2.TemplateError as error:
        raise InputError(f"the chat template refused the conversation: {error}") from error
    except Exception as error:  # a template is a program of its own, and can fail as any
        raise InputError(f"the chat template failed on this conversation: {error!r}") from error
    return "".join(blocks), spans


@lru_cache(maxsize=64)
def _compile(template: str) -> jinja2.Template:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda layout: datetime.now().strftime(layout),
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise InputError(f"the chat template is damaged: {error}") from error


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Dict:
    """`dict` without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` that stores no underscore names."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        names = dict(*rest, **kwargs)
        for name in names:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, names)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a chat template cannot store the name {name!r}")


class _Generation(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}`: renders its body and notes where in the text it stands."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        environment.extend(track=self.track)
        self._tracking: ContextVar[tuple[list[str], list[Span]] | None] = ContextVar("tracking", default=None)

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    @contextmanager
    def track(self, blocks: list[str], spans: list[Span]) -> Iterator[None]:
        token = self._tracking.set((blocks, spans))
        try:
            yield
        finally:
            self._tracking.reset(token)

    def _note(self, caller: Any) -> str:
        body = caller()
        if (tracking := self._tracking.get()) is not None:
            blocks, spans = tracking
            start = len("".join(blocks))
            spans.append((start, start + len(body)))
        return body
