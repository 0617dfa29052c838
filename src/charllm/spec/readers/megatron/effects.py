"""What each flag of Megatron-LM and its descendants does to seconds, watts and memory (effects.toml)."""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Effects:
    """The table of flags."""

    used: frozenset[str]
    no_effect: frozenset[str]
    no_effect_families: tuple[str, ...]
    until_2022: frozenset[str]
    aliases: dict[str, str]
    small: dict[str, str]
    unmodelled: dict[str, str]
    unmodelled_families: dict[str, str]

    def is_without_effect(self, flag: str) -> bool:
        """Say whether a flag is known to change nothing that is predicted."""
        return flag in self.no_effect or flag.startswith(self.no_effect_families)

    def why_unmodelled(self, flag: str) -> str:
        """Return what a flag asks for that is not modelled; empty when it asks for no such thing."""
        family = next((why for start, why in self.unmodelled_families.items() if flag.startswith(start)), "")
        return self.unmodelled.get(flag, family)

    def names(self) -> list[str]:
        """List every flag that is known by its name, for hints at typing errors."""
        return sorted({*self.aliases, *self.used, *self.no_effect, *self.small, *self.unmodelled})


@lru_cache(maxsize=1)
def effects() -> Effects:
    """Read the table."""
    table = tomllib.loads((Path(__file__).parent / "effects.toml").read_text(encoding="utf-8"))
    return Effects(
        used=frozenset(table["used"].split()),
        no_effect=frozenset(table["no_effect"].split()),
        no_effect_families=tuple(table["no_effect_families"].split()),
        until_2022=frozenset(table["until_2022"].split()),
        aliases=table["aliases"],
        small=table["small"],
        unmodelled=table["unmodelled"],
        unmodelled_families=table["unmodelled_families"],
    )
