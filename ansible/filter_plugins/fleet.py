"""The kit's deciding code as filters: it runs on the controller, from this checkout, and needs no installation."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "launch"))

from fastfill.errors import FastfillError
from fastfill.fleet import capacity, release


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except FastfillError as error:
            raise AnsibleFilterError("; ".join(line.strip() for line in error.lines())) from None

    return called


def _turns(wanting: dict[str, bool], serving: list[str], urls: list[str], minimum: object, outage: bool) -> Any:
    share = capacity.minimum(minimum)
    return capacity.turns(wanting, len(set(serving) & set(urls)), len(urls), share, allow_outage=outage)


def _missing(packages: dict[str, str], installed: list[str]) -> dict[str, str]:
    """Packages that are not installed in exactly the version that is wanted."""
    there = {tuple(line.split()[:2]) for line in installed}
    return {name: version for name, version in packages.items() if (name, version) not in there}


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """As Ansible asks for them."""
        return {
            "fleet_checked": _told(release.check),
            "fleet_identity": _told(release.identity),
            "fleet_image": _told(release.pinned_image),
            "fleet_manifest": _told(release.manifest),
            "fleet_missing": _missing,
            "fleet_override": _told(release.override),
            "fleet_settings": _told(release.settings),
            "fleet_turns": _told(_turns),
            "fleet_verdict": _told(capacity.verdict),
        }
