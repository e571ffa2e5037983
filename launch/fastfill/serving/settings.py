"""The settings that a launch ends up with: defaults, profile, options and the user's own flags, in that order."""

from __future__ import annotations

from typing import NamedTuple

from fastfill.errors import UsageError
from fastfill.serving.flags import REDACTED, Flag, from_profile, is_secret, number
from fastfill.serving.profile import Profile

_DEFAULTS = {"host": "127.0.0.1", "port": "30000", "tp-size": "1"}


class Settings(NamedTuple):
    """The flags and the environment that SGLang will see.

    Attributes:
        flags: In the order of the command line; each name once, except in what the user wrote.
        env: The whole environment of the server, inherited variables included.
        notes: What was decided between two values of one setting, one line each.
    """

    flags: tuple[Flag, ...]
    env: dict[str, str]
    notes: tuple[str, ...]

    def values(self, name: str) -> tuple[str, ...] | None:
        """The words of the last flag of this name (the one that argparse keeps); None when it is not given."""
        for flag in reversed(self.flags):
            if flag.name == name:
                return flag.values
        return None

    def given(self, name: str) -> bool:
        """Whether the flag is on the command line."""
        return self.values(name) is not None

    def text(self, name: str, default: str = "") -> str:
        """The flag's single value."""
        values = self.values(name)
        return values[0] if values else default

    def number(self, name: str, default: int) -> int:
        """The flag's value as a count.

        Raises:
            UsageError: It is not a whole number.
        """
        values = self.values(name)
        if values is None:
            return default
        parsed = number(values[0]) if values else None
        if parsed is None:
            raise UsageError(
                f"--{name} {' '.join(values)} is not a whole number",
                where="SGLang's flags",
                next_step="correct it, or leave it out for the profile's",
            )
        return parsed

    def env_on(self, name: str) -> bool:
        """Whether SGLang reads the variable as true."""
        return self.env.get(name, "").strip().lower() in ("true", "1")


def settle(
    profile: Profile,
    *,
    options: dict[str, str],
    extra: list[Flag],
    env: dict[str, str],
    inherited: dict[str, str],
) -> Settings:
    """Join the layers. A later one wins; where two disagree, a note says which.

    Args:
        profile: Its flags come first, in the file's order.
        options: What the user gave as options of ``serve``, by SGLang's flag name.
        extra: What the user wrote after ``--``.
        env: What ``serve`` and the user set; it wins over the profile's.
        inherited: The environment that ``serve`` was started in; everything else wins over it.

    Raises:
        UsageError: An option and a flag after ``--`` give two values of one setting.
    """
    notes: list[str] = []
    mine = {flag.name: flag.values for flag in extra}
    for name, value in options.items():
        if name in mine and mine[name] != (value,):
            raise UsageError(
                f"--{name} is given twice: {value}, and {_shown(name, mine[name])} after --",
                where=f"--{name}",
                next_step="give it once, before or after --",
            )
    lower = {flag.name: flag for flag in _of_profile(profile)}
    from_file = frozenset(lower)
    for name, value in _DEFAULTS.items():
        lower.setdefault(name, Flag(name, (value,), (f"--{name}", value)))
    for name, value in options.items():
        before = lower.get(name)
        if before is not None and before.values != (value,) and name in from_file:
            notes.append(f"--{name}: {value} (yours) instead of {_shown(name, before.values)} ({profile.name})")
        lower[name] = Flag(name, (value,), (f"--{name}", value))
    for name, values in mine.items():
        before = lower.pop(name, None)
        if before is not None and before.values != values and name in from_file:
            old, new = (_shown(name, side) for side in (before.values, values))
            notes.append(f"--{name}: {new} (yours) instead of {old} ({profile.name})")
    notes += _twice(extra)
    order = ("model-path", "host", "port", "tp-size")
    ordered = [lower[name] for name in order if name in lower]
    ordered += [flag for name, flag in lower.items() if name not in order]
    return Settings(tuple(ordered + extra), _environment(profile, env, inherited, notes), tuple(notes))


def _shown(name: str, values: tuple[str, ...]) -> str:
    return REDACTED if is_secret(name) else " ".join(values) or "on"


def _of_profile(profile: Profile) -> list[Flag]:
    flags = (from_profile(name, value) for name, value in profile.flags.items())
    return [flag for flag in flags if flag is not None]


def _twice(extra: list[Flag]) -> list[str]:
    notes: list[str] = []
    seen: dict[str, tuple[str, ...]] = {}
    for flag in extra:
        if seen.get(flag.name, flag.values) != flag.values and not is_secret(flag.name):
            notes.append(f"--{flag.name} is given twice after --: SGLang keeps the last, {' '.join(flag.values)}")
        seen[flag.name] = flag.values
    return notes


def _environment(profile: Profile, env: dict[str, str], inherited: dict[str, str], notes: list[str]) -> dict[str, str]:
    result = dict(inherited)
    for layer, whose in ((profile.env, profile.name), (env, "yours")):
        for name, value in layer.items():
            before = result.get(name)
            if before is not None and before != value and not is_secret(name):
                notes.append(f"{name}: {value} ({whose}) instead of {before}")
            result[name] = value
    return result
