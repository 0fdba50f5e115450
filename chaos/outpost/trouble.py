"""What an operation says when it cannot do its work."""

from __future__ import annotations


class Trouble(Exception):
    """`kind` is a short word for programs (`not-located`, `denied`, `missing`), the text is for people."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
