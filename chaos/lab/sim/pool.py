"""Finite memory of a node: KV tokens and request slots. A seam for builds that lose some."""

from __future__ import annotations


class KvPool:
    """Counts KV tokens by owner; every reservation is freed exactly once, by its owner's name."""

    def __init__(self, *, tokens: int, slots: int) -> None:
        self.tokens = tokens
        self.slots = slots
        self._held: dict[str, int] = {}
        self._used = 0

    @property
    def used(self) -> int:
        """KV tokens held."""
        return self._used

    @property
    def available(self) -> int:
        """KV tokens free."""
        return self.tokens - self._used

    @property
    def free_slots(self) -> int:
        """Requests that can still be admitted."""
        return self.slots - len(self._held)

    @property
    def usage(self) -> float:
        """Fraction of KV tokens held."""
        return self._used / self.tokens

    def reserve(self, owner: str, tokens: int) -> bool:
        """Take a slot and tokens, or nothing and return False."""
        if self.free_slots <= 0 or tokens > self.available:
            return False
        self._held[owner] = tokens
        self._used += tokens
        return True

    def grow(self, owner: str, to: int, *, by: int) -> bool:
        """Hold at least `to` tokens, growing in steps of `by`; False when the pool is full."""
        held = self._held[owner]
        if to <= held:
            return True
        more = min(by, self.available)
        if held + more < to:
            return False
        self._held[owner] = held + more
        self._used += more
        return True

    def lose(self, owner: str) -> None:
        """Forget an owner without giving back its tokens: a leak, for builds that have one."""
        self._held.pop(owner, None)

    def free(self, owner: str) -> None:
        """Give back what `owner` holds; nothing when it holds nothing."""
        self._used -= self._held.pop(owner, 0)
