"""Tests that use the same lab server run one after another: a server takes half a minute to start."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group by the ``server`` marker, in the order of first appearance; tests without one keep to the front."""

    def name(item: pytest.Item) -> str:
        marker = item.get_closest_marker("server")
        return str(marker.args[0]) if marker else ""

    order: dict[str, int] = {"": 0}
    for item in items:
        order.setdefault(name(item), len(order))
    items.sort(key=lambda item: order[name(item)])
