"""The four published revisions of the fp8 head-dim-256 kernel objects, by SHA-256.

A hash identifies a revision; aiter's version number does not. A hash that is not listed may be newer: that is not bad.
Source: the objects under ``hsa/gfx950/fmha_v3_fwd/`` of ROCm/aiter at the commits named here.
"""

from __future__ import annotations

from typing import NamedTuple

PLAIN = "fwd_hd256_fp8.co"
CAUSAL = "fwd_hd256_fp8_causal.co"
GROUP = "fwd_hd256_fp8_group.co"
CAUSAL_GROUP = "fwd_hd256_fp8_causal_group.co"
FILES = (PLAIN, CAUSAL, CAUSAL_GROUP, GROUP)
"""Causal or not, one batch or packed sequences ("group"). A prefill takes CAUSAL_GROUP."""

SYMBOLS = {
    PLAIN: "_ZN5aiter25fmha_fwd_hd256_fp8_gfx950E",
    CAUSAL: "_ZN5aiter32fmha_fwd_hd256_fp8_causal_gfx950E",
    GROUP: "_ZN5aiter31fmha_fwd_hd256_fp8_group_gfx950E",
    CAUSAL_GROUP: "_ZN5aiter38fmha_fwd_hd256_fp8_causal_group_gfx950E",
}


class Revision(NamedTuple):
    """One published revision.

    Attributes:
        id: A, B, C or D, in the order of publication.
        commit: The aiter commit that brought it.
        note: What it is good or bad for, in one line.
        broken: The names of the files that compute wrong answers.
        sha256: File name to SHA-256 in hex.
    """

    id: str
    commit: str
    note: str
    broken: frozenset[str]
    sha256: dict[str, str]


REVISIONS: tuple[Revision, ...] = (
    Revision(
        "A",
        "75c5e0f0b3",
        "first release (v0.1.19): right answers, slower than D, no log-sum-exp",
        frozenset(),
        {
            PLAIN: "101f09b394028f2807855c8281b5e55f916ca9a20111ee3c2f2f7964c362363f",
            CAUSAL: "2add5f3ca10948c09753384b333b0f52007f1c62545b93c424206322d794466b",
            CAUSAL_GROUP: "12b406fe1e3e826baae51ad1958122872a9313fe74053fa118d062798b988287",
            GROUP: "cf96c6a58547854a9fad572f83a15124c64b1fec1ecfcf89d9918546d9296fed",
        },
    ),
    Revision(
        "B",
        "e1369bfa67",
        "wrong: the causal kernels leave rows unwritten whenever one sequence dominates the batch",
        frozenset({CAUSAL, CAUSAL_GROUP}),
        {
            PLAIN: "b3af53836d575371fdb1a9f78e9a1a5af25c96c2d5e0070a7c15f225748dd01d",
            CAUSAL: "a916b4c5f5b920171d69fe240b06c29ed430b053c4233b7c593f53be7d4aab35",
            CAUSAL_GROUP: "95ef992a211ffeb2ae3dc9afa7ca87a9dcc59f85a9423d67e2e22b62d153eaba",
            GROUP: "2908c6716bb811cac6a352837d595a1aefe719ca5055992f5021b2f9d2e89e68",
        },
    ),
    Revision(
        "C",
        "2e7856a0f8",
        "the causal kernels of B mended; the other two are B's",
        frozenset(),
        {
            PLAIN: "b3af53836d575371fdb1a9f78e9a1a5af25c96c2d5e0070a7c15f225748dd01d",
            CAUSAL: "1c791298bfd17f4737ada7df548c159ce703d2b5bee4886db0b5f442cfa9b811",
            CAUSAL_GROUP: "5065e8c66cbd47359ab3b71208d278c11ac245c6ea9168e4a1786af68adccae0",
            GROUP: "2908c6716bb811cac6a352837d595a1aefe719ca5055992f5021b2f9d2e89e68",
        },
    ),
    Revision(
        "D",
        "5c0fece96d",
        "all four made faster; in v0.1.20 and in c16d44b93a",
        frozenset(),
        {
            PLAIN: "10f23188fc1d6727e6bf2c7788d1be8ab30149a2b2ad1dced752578424c4081d",
            CAUSAL: "cfa48e8ed3c70e983619b59c34b5f5b20422655762f400e4bcf99c07bd552be5",
            CAUSAL_GROUP: "6901ab7fa05fb920df70fcd1090399af3a75129169639dbc930abd6ee010fc5b",
            GROUP: "816d44405a6397a8ed8c5c717a725d1965d875c1e319d72d98932a921dadce22",
        },
    ),
)

BY_ID: dict[str, Revision] = {revision.id: revision for revision in REVISIONS}

_BY_HASH: dict[str, tuple[tuple[str, str], ...]] = {}
for _revision in REVISIONS:
    for _name, _sha256 in _revision.sha256.items():
        _BY_HASH[_sha256] = (*_BY_HASH.get(_sha256, ()), (_revision.id, _name))


def of_hash(sha256: str) -> tuple[str, ...]:
    """The revisions that hold a file of this SHA-256, oldest first; empty for a hash that is not published here."""
    return tuple(revision for revision, _ in _BY_HASH.get(sha256.lower(), ()))


def is_broken_hash(sha256: str) -> bool:
    """Whether this very file computes wrong answers."""
    return any(name in BY_ID[revision].broken for revision, name in _BY_HASH.get(sha256.lower(), ()))
