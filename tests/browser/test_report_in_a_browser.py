"""The report in a real browser, without a network: every plot is drawn. Needs Chromium; run by `make prove-all`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from bench_fakes import CELL, World, bench

from fastfill.benchmark import report
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.plots import COLOURS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH (Debian: apt-get install chromium)")
    folder = tmp_path_factory.mktemp("report")
    bench(folder, World(), cells=[CELL, Cell(1000, 24, 1, 4)])[0].run()
    report.write(folder)
    return folder / "report.html"


def chromium(page: Path, *words: str) -> str:
    assert CHROMIUM is not None
    # No name resolves and no address is reached but the file itself.
    argv = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,3400",
            "--proxy-server=127.0.0.1:9", "--host-resolver-rules=MAP * ~NOTFOUND", *words, page.as_uri()]  # fmt: skip
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True, cwd=page.parent).stdout


def test_every_plot_is_in_the_page_that_the_browser_built(page: Path) -> None:
    dom = chromium(page, "--dump-dom")
    for name in ("ratio", "ttft", "coverage", "timeline"):
        assert f'data-plot="{name}"' in dom
    assert dom.count("<svg") == 4
    assert "parsererror" not in dom


def test_every_plot_is_drawn(page: Path) -> None:
    import numpy as np
    from matplotlib import image

    picture = page.parent / "report.png"
    chromium(page, f"--screenshot={picture}")
    pixels = (255 * image.imread(picture)[..., :3]).round().astype(int)
    # Ratio and timeline show B's colour, coverage its green, the boxes B's colour on white; none is a patch of nothing.
    for colour, least in ((COLOURS["B"], 50), ("#2e7d32", 1000), ("#ef6c00", 1000), ("#90caf9", 20)):
        wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        seen = int((np.abs(pixels - wanted).max(axis=-1) <= 12).sum())
        assert seen >= least, (colour, seen)
    rows = np.nonzero((pixels.sum(axis=-1) < 600).any(axis=1))[0]
    assert rows.max() > 1500, "the page ends too early"
