"""The two sides of a comparison: in which settings they differ, whether that is one thing, how to get to the other."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.errors import UsageError
from fastfill.serving.flags import REDACTED, is_secret
from fastfill.serving.profile import Profile
from sglang_fastfill.conditions import FLAG

Switch = Literal["path", "restart"]
ArmName = Literal["A", "B"]
_ABSENT = "(not set)"


class Difference(NamedTuple):
    """One setting in which the arms differ, as text; secrets are replaced."""

    kind: Literal["env", "flag", "fastfill"]
    name: str
    a: str
    b: str

    def text(self) -> str:
        """One line for a person."""
        return f"{'--' if self.kind == 'flag' else ''}{self.name}: {self.a} in A, {self.b} in B"


class Arm(NamedTuple):
    """One side.

    Attributes:
        profile: What the server of this side is started with.
        path: The kill switch's position while this side is measured.
        fires: Whether the fast path must fire on this side; the other must not.
    """

    name: ArmName
    profile: Profile
    path: Literal["on", "off"]
    fires: bool


class Comparison(NamedTuple):
    """Both sides and what tells them apart.

    Attributes:
        label: What a comparison of several things at once is called by whoever made it; empty for one thing.
        same: Whether the two sides are the same: an A/A, which can only find noise.
    """

    a: Arm
    b: Arm
    differences: tuple[Difference, ...]
    switch: Switch
    label: str

    @property
    def same(self) -> bool:
        """See the class."""
        return not self.differences

    def arm(self, name: ArmName) -> Arm:
        """The side of this name."""
        return self.a if name == "A" else self.b


def differences(a: Profile, b: Profile) -> tuple[Difference, ...]:
    """The settings of the launch in which two profiles differ; what they are called and described as does not count."""
    found: list[Difference] = []
    sides: tuple[tuple[Literal["env", "flag", "fastfill"], dict[str, object], dict[str, object]], ...] = (
        ("env", dict(a.env), dict(b.env)),
        ("flag", dict(a.flags), dict(b.flags)),
        ("fastfill", a.fastfill.model_dump(exclude={"description"}), b.fastfill.model_dump(exclude={"description"})),
    )
    for kind, mine, theirs in sides:
        for name in sorted({*mine, *theirs}):
            left, right = mine.get(name, _ABSENT), theirs.get(name, _ABSENT)
            # A flag that is switched off is a flag that is not there.
            if kind == "flag":
                left, right = (_ABSENT if value is False else value for value in (left, right))
            if left != right or type(left) is not type(right):
                found.append(Difference(kind, name, _shown(name, left), _shown(name, right)))
    return tuple(found)


def compare(a: Profile, b: Profile, *, switch: Switch | None, label: str = "") -> Comparison:
    """Settle how two profiles are compared.

    Args:
        a: The side that is compared with.
        b: The side of which the report says how much faster it is.
        switch: How to get from one to the other; None for the kill switch where it can, else by a restart.
        label: A name for a comparison of several things at once.

    Raises:
        UsageError: They differ in several things and there is no label, or the kill switch cannot make the difference.
    """
    found = differences(a, b)
    if len(found) > 1 and not label:
        raise UsageError(
            f"profiles {a.name} and {b.name} differ in {len(found)} settings: no result could say which one did it",
            where="--a, --b",
            detail="\n".join(one.text() for one in found),
            next_step="make a profile that extends A and changes one of them, or name the mixture: --label TEXT",
        )
    only_flag = all(one.kind == "env" and one.name == FLAG for one in found)
    if switch == "path" and not only_flag:
        raise UsageError(
            "the kill switch changes the fast path only, and these profiles differ in more",
            where="--switch path",
            detail="\n".join(one.text() for one in found),
            next_step="leave --switch out: the server is restarted between the arms",
        )
    chosen: Switch = switch or ("path" if only_flag else "restart")
    return Comparison(_arm("A", a, chosen), _arm("B", b, chosen), found, chosen, label)


def served(comparison: Comparison) -> Arm:
    """The arm whose profile the server runs where the kill switch makes the arms: the one with the flag."""
    return comparison.b if comparison.b.fires else comparison.a


def _arm(name: ArmName, profile: Profile, switch: Switch) -> Arm:
    fires = profile.env.get(FLAG, "").strip().lower() in ("1", "true")
    return Arm(name, profile, "on" if fires or switch == "restart" else "off", fires)


def _shown(name: str, value: object) -> str:
    if value is _ABSENT:
        return _ABSENT
    return REDACTED if is_secret(name) else " ".join(map(str, value)) if isinstance(value, list) else str(value)
