"""The library's docstrings, which are plain text, as Sphinx wants them.

a paragraph                      a paragraph, with `names` as code and nothing else marked
indented lines, or columns       kept as they are
indented lines of "name: text"   a list of names
"""

import re
from typing import Any

NAME = re.compile(r"^([\w, ]+(?:=(?:'[^']*'|[^\s:]+))?): +(.*)")
MARKS = re.compile(r"(?<!\w)([*_|\\])|([*|\\])|(_)(?!\w)")


def paragraphs(lines: list[str]) -> list[list[str]]:
    """Blocks of lines between empty ones; indented ones that follow each other are one."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line.rstrip())
        elif found[-1]:
            found.append([])
    blocks: list[list[str]] = []
    for block in filter(None, found):
        if blocks and _indented(block) and _indented(blocks[-1]):
            blocks[-1] += ["", *block]
        else:
            blocks.append(block)
    return blocks


def plain(text: str) -> str:
    """Words with nothing marked but `code`."""
    parts = re.split(r"`+([^`]+)`+", text)
    for k, part in enumerate(parts):
        parts[k] = f"``{part}``" if k % 2 else MARKS.sub(lambda found: "\\" + found.group(), part)
    return "".join(parts)


def rendered(lines: list[str]) -> list[str]:
    """reStructuredText of one docstring."""
    made: list[str] = []
    for block in paragraphs(lines):
        entries = _entries(block)
        if entries:
            for name, text in entries:
                made += [f"``{name}``", f"    {plain(text) or '..'}", ""]
        elif _indented(block) or any(re.search(r"\S {3,}\S", line) or line.startswith(" ") for line in block):
            made += ["::", "", *(f"    {line}" for line in block), ""]
        else:
            made += [plain(" ".join(block)), ""]
    return made


def _indented(block: list[str]) -> bool:
    return all(line.startswith(" ") for line in block if line)


def _entries(block: list[str]) -> list[tuple[str, str]] | None:
    """Names and texts of an indented list of them; None of anything else."""
    if not _indented(block):
        return None
    edge = min(len(line) - len(line.lstrip()) for line in block if line)
    found: list[tuple[str, str]] = []
    for line in filter(None, block):
        text = line[edge:]
        named = NAME.match(text)
        if text.startswith(" ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {text.strip()}")
        elif named:
            found.append((named[1], named[2]))
        else:
            return None
    return found


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = rendered(lines)


def _signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: Any, returned: Any) -> Any:
    """Where a docstring lists the options with their defaults, that is enough."""
    listed = what == "class" and "\nOptions:\n" in (obj.__doc__ or "")
    return ("(...)", None) if listed else (signature, returned)


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
