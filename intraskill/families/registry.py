"""Which task families there are. One line registers a family: its name, its settings class, and what opens it.

Names are resolved when they are needed, so a family that nobody asks for is not imported, and the settings of one are
read without importing its world.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from intraskill.core.errors import UserError
from intraskill.families.base import FamilySettings, TaskFamily

FAMILIES: Mapping[str, tuple[str, str]] = {
    "shop": ("intraskill.families.shop.settings:ShopSettings", "intraskill.families.shop.family:open_shop"),
    "guess": ("intraskill.families.guess.settings:GuessSettings", "intraskill.families.guess.family:Guess"),
}
SETTINGS: Mapping[str, type[FamilySettings]] = {name: resolve_name(lines[0]) for name, lines in FAMILIES.items()}
DEFAULT: FamilySettings = SETTINGS["shop"].model_validate({})  # of a file that names no family


def kind_of(stored: Mapping[str, Any]) -> type[FamilySettings]:
    """The settings class of the family that stored settings name, of a run or of an evaluation. Raises `UserError`."""
    name = (stored.get("environment") or {}).get("family", DEFAULT.family)
    if name not in SETTINGS:
        raise UserError(f"this was made with the task family {name!r}, which is not registered here")
    return SETTINGS[name]


def open_family(settings: FamilySettings, cache_dir: Path) -> TaskFamily:
    """The world of `settings`; what it has to make first is kept in `cache_dir`. Raises `UserError`."""
    family: TaskFamily = resolve_name(FAMILIES[settings.family][1])(settings, cache_dir)
    return family


def _named(section: Any) -> Any:
    """The family that a section of settings names."""
    if isinstance(section, Mapping):
        return section.get("family", DEFAULT.family)
    return getattr(section, "family", None)


if TYPE_CHECKING:
    AnyFamilySettings = FamilySettings
else:  # pydantic chooses the class by the name
    AnyFamilySettings = Annotated[
        Union[tuple(Annotated[kind, Tag(name)] for name, kind in SETTINGS.items())],  # noqa: UP007
        Discriminator(_named),
    ]
