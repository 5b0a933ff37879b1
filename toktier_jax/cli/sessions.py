"""The verb `session` of the command line: sessions in a store on disk. Parsing and printing; the work is elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier_jax.cli.files import add_tokenizer, load, read

if TYPE_CHECKING:
    from toktier_jax.sessions import SessionStore


def add_sessions(verbs: Any) -> None:
    """Adds `session append|show|list|delete|verify` to the parser's verbs."""
    summary = "keep the ids of growing texts in a store on disk"
    parser = verbs.add_parser("session", help=summary, description=summary)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: Callable[[argparse.Namespace, SessionStore], int], summary: str) -> None:
        sub = actions.add_parser(name, help=summary, description=summary)
        if name != "list":
            sub.add_argument("name", metavar="NAME")
        folder = "the store's folder (default: toktier_jax/sessions in $XDG_DATA_HOME, else in ~/.local/share)"
        sub.add_argument("--store", type=Path, metavar="DIR", help=folder)
        sub.add_argument("--json", action="store_true", help="one JSON object")
        add_tokenizer(sub)
        sub.set_defaults(verb=lambda arguments: _with_store(arguments, action))

    add("append", _append, "add the text on stdin to a session, which is made if it is new")
    add("show", _show, "print a session's ids, and what is known of it")
    add("list", _list, "print the names of all sessions")
    add("delete", _delete, "forget a session")
    add("verify", _verify, "compare a session with a full encode by the reference")


def _with_store(arguments: argparse.Namespace, action: Callable[[argparse.Namespace, SessionStore], int]) -> int:
    from toktier_jax.errors import SessionError
    from toktier_jax.sessions import SessionStore
    from toktier_jax.sessions.disk import FILE

    folder = arguments.store or _default_folder()
    if action is not _append and not (folder / FILE).is_file():
        if action is _list and arguments.store is None:
            print(json.dumps([]), end="\n") if arguments.json else None
            return 0
        raise SessionError(f"there is no session store in {folder}; `session append` makes one")
    with SessionStore(load(arguments.tokenizer), folder) as store:
        return action(arguments, store)


def _default_folder() -> Path:
    from toktier_jax.errors import SessionError

    try:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError as error:
        raise SessionError(f"no place for sessions: {error}; pass --store") from error
    return base / "toktier_jax" / "sessions"


def _append(arguments: argparse.Namespace, store: SessionStore) -> int:
    from toktier_jax.errors import InputError

    data = read("-")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is not UTF-8 at byte {error.start}; nothing was changed") from None
    session = store.open(arguments.name)
    start = time.perf_counter()
    patch = session.append(text)
    seconds = time.perf_counter() - start
    known: dict[str, Any] = {"revision": patch.revision, "keep": patch.keep, "ids": patch.ids.tolist()}
    known |= {"tail": patch.tail, "ms": round(1e3 * seconds, 3)}
    if arguments.json:
        print(json.dumps(known))
    else:
        print(f"revision {patch.revision}: keep {patch.keep} ids, {len(patch.ids)} new in {known['ms']} ms")
        print(*known["ids"])
    return 0


def _show(arguments: argparse.Namespace, store: SessionStore) -> int:
    session = store.get(arguments.name)
    explained, ids = session.explain(), session.ids.tolist()
    if arguments.json:
        print(json.dumps({**explained, "ids": ids}))
    else:
        print(f"{explained['characters']} characters, {len(ids)} ids, revision {explained['revision']}")
        print(f"changes: {explained['way']} ({explained['reason']})")
        print(*ids)
    return 0


def _list(arguments: argparse.Namespace, store: SessionStore) -> int:
    names = store.list()
    print(json.dumps(names) if arguments.json else "\n".join(names), end="\n" if names or arguments.json else "")
    return 0


def _delete(arguments: argparse.Namespace, store: SessionStore) -> int:
    store.delete(arguments.name)
    if arguments.json:
        print(json.dumps({"deleted": arguments.name}))
    return 0


def _verify(arguments: argparse.Namespace, store: SessionStore) -> int:
    session = store.get(arguments.name)
    expected = store.engine.reference_ids(session.text.encode()).tolist()
    equal = session.ids.tolist() == [*store.engine.info.leading, *expected]
    print(json.dumps({"equal": equal, "ids": len(session)}) if arguments.json else "equal" if equal else "DIFFERENT")
    return 0 if equal else 1
