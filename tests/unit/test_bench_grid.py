"""The grid, the arms and the order of the runs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fastfill.benchmark import arms, grid, schedule
from fastfill.benchmark.grid import Cell
from fastfill.errors import UsageError
from fastfill.serving.profile import Profile, load
from sglang_fastfill.conditions import FLAG


def test_lengths_go_together_and_each_pair_meets_every_concurrency() -> None:
    cells = grid.load("isl=8192,60000 osl=1024,600 conc=4,16,64,256")
    assert len(cells) == 8
    assert {(cell.isl, cell.osl) for cell in cells} == {(8192, 1024), (60000, 600)}
    assert cells[0] == Cell(8192, 1024, 4, 8)
    assert [cell.conc for cell in cells[:4]] == [4, 16, 64, 256]


def test_one_answer_length_serves_all() -> None:
    cells = grid.load("isl=64,128 osl=1 conc=1 prompts=7")
    assert cells == [Cell(64, 1, 1, 7), Cell(128, 1, 1, 7)]


def test_a_file_has_a_line_for_each_group(tmp_path: Path) -> None:
    file = tmp_path / "grid.txt"
    file.write_text("# published\nisl=8192 osl=1024 conc=4\n\nisl=60000 osl=600 conc=4,256  # long\n")
    assert [cell.name for cell in grid.load(str(file))] == [
        "isl8192-osl1024-conc4",
        "isl60000-osl600-conc4",
        "isl60000-osl600-conc256",
    ]
    file.write_text("isl=8192 osl=1024 conc=four\n")
    with pytest.raises(UsageError, match=r"conc=four") as raised:
        grid.load(str(file))
    assert raised.value.where == f"{file}:1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("isl=1,2 osl=1,2,3 conc=1", "by position"),
        ("isl=1 osl=1", "does not say conc"),
        ("isl=0 osl=1 conc=1", "above 0"),
        ("isl=1 osl=1 conc=1,", "above 0"),
        ("isl=1 isl=2 osl=1 conc=1", "twice"),
        ("isl=1 osl=1 conc=1 bs=2", "no part of a grid"),
        ("isl=1,1 osl=1 conc=1", "twice"),
        ("isl=²5 osl=1 conc=1", "above 0"),
        ("no-such-file", "cannot be read"),
    ],
)
def test_what_is_no_grid_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        grid.load(text)


def changed(**updates: object) -> Profile:
    return load("long-context").model_copy(update={"name": "mine", **updates})


def test_the_flag_alone_is_one_difference_and_needs_no_restart() -> None:
    found = arms.compare(load("off"), load("long-context"), switch=None)
    assert [one.name for one in found.differences] == [FLAG]
    assert (found.switch, found.a.path, found.b.path, found.a.fires, found.b.fires) == (
        "path",
        "off",
        "on",
        False,
        True,
    )
    assert arms.served(found).profile.name == "long-context"
    swapped = arms.compare(load("long-context"), load("off"), switch=None)
    assert arms.served(swapped).profile.name == "long-context"
    assert (swapped.a.path, swapped.b.path) == ("on", "off")


def test_a_restart_leaves_the_switch_alone() -> None:
    found = arms.compare(load("off"), load("long-context"), switch="restart")
    assert (found.a.path, found.b.path, found.switch) == ("on", "on", "restart")


def test_two_differences_are_refused_unless_they_have_a_name() -> None:
    with pytest.raises(UsageError, match="differ in 2 settings") as raised:
        arms.compare(load("long-context"), load("balanced"), switch=None)
    assert "--chunked-prefill-size: -1 in A, 16384 in B" in raised.value.detail
    found = arms.compare(load("long-context"), load("balanced"), switch=None, label="both bounds of a pass")
    assert (found.switch, found.label) == ("restart", "both bounds of a pass")


def test_the_kill_switch_cannot_change_a_flag() -> None:
    other = changed(flags={**load("long-context").flags, "page-size": 64})
    with pytest.raises(UsageError, match="kill switch"):
        arms.compare(load("long-context"), other, switch="path")
    assert arms.compare(load("long-context"), other, switch=None).switch == "restart"


def test_a_flag_that_is_switched_off_is_one_that_is_not_there() -> None:
    flags = load("long-context").flags
    assert not arms.differences(changed(), changed(flags={**flags, "enable-mixed-chunk": False}))
    assert arms.differences(changed(), changed(flags={**flags, "enable-mixed-chunk": True}))
    assert arms.differences(changed(flags={"x": 1}), changed(flags={"x": True}))


def test_a_secret_is_a_difference_that_is_not_shown() -> None:
    found = arms.differences(changed(env={"HF_TOKEN": "one"}), changed(env={"HF_TOKEN": "two"}))
    assert "one" not in found[0].text()
    assert "two" not in found[0].text()


CELLS = [Cell(64, 1, 1, 4), Cell(128, 1, 2, 4)]


@pytest.mark.parametrize("switch", ["path", "restart"])
def test_every_run_is_there_once_and_blocks_are_a_b_b_a(switch: arms.Switch) -> None:
    steps = [step for unit in schedule.units(CELLS, blocks=4, noise=2, switch=switch) for step in unit.steps]
    assert len({step.name for step in steps}) == len(steps) == 2 * 4 * (4 + 2)
    for cell in CELLS:
        for kind, number, order in (("ab", 3, "ABBA"), ("aa", 2, "AAAA")):
            block = [step for step in steps if (step.cell, step.kind, step.block) == (cell, kind, number)]
            assert "".join(step.arm for step in block) == order
            assert [step.side for step in block] == ["left", "right", "right", "left"]
            first, second, third, fourth = (step.seed for step in block)
            assert first == second != third == fourth


def test_seeds_are_never_used_for_two_pairs_of_a_cell() -> None:
    steps = [step for unit in schedule.units(CELLS[:1], blocks=9, noise=5, switch="path") for step in unit.steps]
    pairs = {(step.kind, step.block, step.position // 2): step.seed for step in steps}
    assert len(set(pairs.values())) == len(pairs) == 2 * 14


def test_a_restart_is_shared_by_all_cells() -> None:
    arms_in_order = [
        step.arm for unit in schedule.units(CELLS, blocks=3, noise=0, switch="restart") for step in unit.steps
    ]
    assert sum(left != right for left, right in itertools.pairwise(arms_in_order)) == 2 * 3


def test_blocks_of_noise_are_spread() -> None:
    kinds = [unit.name[:2] for unit in schedule.units(CELLS[:1], blocks=6, noise=3, switch="path")]
    assert kinds.count("aa") == 3
    assert "aaaa" not in "".join(kinds)
