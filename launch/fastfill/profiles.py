"""``fastfill profiles``: what ships, and what each is for."""

from __future__ import annotations

from typing import Annotated

import typer

from fastfill import output


def profiles(json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List the launch profiles."""
    from fastfill.serving.profile import available, load

    shipped = [load(name) for name in available()]
    if json:
        from fastfill.serving.document import describe_profiles

        output.document(describe_profiles(shipped))
        return
    width = max((len(profile.name) for profile in shipped), default=0)
    for profile in shipped:
        output.data(f"{profile.name:<{width}}  {profile.fastfill.description}")
