"""Writes the measured results into README.md and the pages, between their results markers.

    python -m benchmarks.summary [--results DIR] [FILE ...]

`<!-- results:begin ... -->` opens the block of all results, `<!-- results:NAME -->` one part of them (`NAMED`);
`<!-- results:end -->` ends both. What a part says is in summary_encode.py, summary_sessions.py, summary_sampling.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from . import report
from .summary_encode import aot, batch, campaign, compiling, device, encode, fastest, figures
from .summary_sampling import arms, boundary, loop, mask
from .summary_sessions import appends, capacity, edits, replay, walks

BLOCK = re.compile(r"(<!-- results:(\w+)[^>]*-->)(.*?)(<!-- results:end -->)", re.DOTALL)
PAGES = ("README.md", "docs/benchmarks.md", "docs/index.md", "docs/sampling.md", "docs/sessions.md")
NOTHING = "not measured yet on this revision"
Part = Callable[[Path], list[str]]
"""Paragraphs of Markdown from a folder of results; none where the result is not there."""
BRIEF: Sequence[Part] = (campaign, walks, boundary, encode)
"""What the README shows."""
ALL: Sequence[Part] = (*BRIEF, figures, batch, appends, edits, capacity, replay, arms, mask, loop, aot, device)
NAMED: Mapping[str, Part] = {
    "appends": appends,
    "arms": arms,
    "capacity": capacity,
    "compiling": compiling,
    "device": device,
    "edits": edits,
    "fastest": fastest,
    "loop": loop,
    "mask": mask,
    "walks": walks,
}
"""Parts that pages show by themselves."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=report.RESULTS)
    parser.add_argument("files", nargs="*", type=Path, default=[report.ROOT / page for page in PAGES])
    arguments = parser.parse_args(argv)
    for file in arguments.files:
        insert(file, arguments.results)
    return 0


def insert(file: Path, folder: Path) -> None:
    """Puts the results between the file's markers."""
    file.write_text(filled(file, folder), encoding="utf-8")


def filled(file: Path, folder: Path) -> str:
    """The file's text with the results between its markers; those of one line stay on it."""

    def block(match: re.Match[str]) -> str:
        begin, name, old, end = match.groups()
        if name == "begin":
            return f"{begin}\n{render(folder, brief=file.name == 'README.md')}{end}"
        text = "\n\n".join(NAMED[name](folder)) or NOTHING
        return f"{begin}\n{text}\n{end}" if "\n" in old else f"{begin}{text}{end}"

    return BLOCK.sub(block, file.read_text(encoding="utf-8"))


def render(folder: Path, *, brief: bool = False) -> str:
    """Markdown of whatever results lie in `folder`; `brief`: the counts and the encode's speed alone."""
    if not any(folder.glob("*.json")):
        return f"{NOTHING.capitalize()}.\n"
    return "\n\n".join(text for part in (BRIEF if brief else ALL) for text in part(folder)) + "\n"


if __name__ == "__main__":
    sys.exit(main())
