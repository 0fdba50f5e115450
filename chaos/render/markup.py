"""Building HTML so that nothing unescaped can slip in: every string is text unless it was built here."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from chaos.render import words

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID = {"meta", "link", "br", "hr", "wbr"}


class Html(str):
    """Markup that is already safe."""

    __slots__ = ()


Child = str | Html | int | None


def escape(text: Child) -> Html:
    """Markup that shows `text`; control and direction characters are dropped."""
    if isinstance(text, Html):
        return text
    return Html("" if text is None else html.escape(words.clean(str(text))))


def h(tag: str, *children: Child, **attributes: str | None) -> Html:
    """An element; `cls` is its class, `_` in a name stands for `-`, attributes that are None are left out."""
    named = (("class" if name == "cls" else name.replace("_", "-"), value) for name, value in attributes.items())
    attrs = "".join(f' {name}="{html.escape(words.clean(value))}"' for name, value in named if value is not None)
    if tag in _VOID:
        return Html(f"<{tag}{attrs}>")
    return Html(f"<{tag}{attrs}>{''.join(map(escape, children))}</{tag}>")


def join(parts: Iterable[Child], between: str = "") -> Html:
    """Several pieces in a row."""
    return Html(escape(between).join(map(escape, parts)))


def table(headings: Iterable[Child], rows: Iterable[Iterable[Child]], *, cls: str = "") -> Html:
    """A table in a box of its own that scrolls sideways where it is too wide for the screen."""
    head = h("thead", h("tr", *(h("th", heading, scope="col") for heading in headings)))
    body = h("tbody", *(h("tr", *(cell if is_cell(cell) else h("td", cell) for cell in row)) for row in rows))
    return h("div", h("table", head, body, cls=cls or None), cls="box", tabindex="0")


def is_cell(cell: Child) -> bool:
    """Whether a cell is already a table cell."""
    return isinstance(cell, Html) and cell.startswith(("<td", "<th"))
