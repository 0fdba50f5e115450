"""Whose codeword it is: the short owners that stand in prompts, and the requests that the journal knows them by."""

from __future__ import annotations

from dataclasses import dataclass

CANARY = "c"


@dataclass(frozen=True, slots=True)
class Owners:
    """The groups of a run, in order: a prompt names them by their number."""

    groups: tuple[str, ...]

    def of_group(self, name: str) -> str:
        """What the owners of a group's codewords begin with."""
        return f"g{self.groups.index(name)}"

    @staticmethod
    def of_canary(number: int) -> str:
        """The owner of a canary's codeword."""
        return f"{CANARY}-{number}"

    def request(self, owner: str) -> str:
        """The request that an owner stands for; the owner itself when there is none."""
        space, *numbers = owner.split("-")
        match space[:1], [int(number) for number in numbers]:
            case "c", [number]:
                return f"canary-{number:06d}"
            case "g", [session, round_] if int(space[1:] or -1) in range(len(self.groups)):
                return f"{self.groups[int(space[1:])]}-s{session:07d}-r{round_:05d}"
        return owner
