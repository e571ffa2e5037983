"""The server that candidates are tried on: model, GPUs, release, the flags that stay the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastfill.errors import UsageError
from fastfill.explaining import aiter, launch, releases, scales, source
from fastfill.explaining.facts import Facts, attention_ranks, rank_heads
from fastfill.explaining.scheduler import schedule
from fastfill.explaining.verdict import evaluate
from fastfill.planning.assumptions import Assumptions
from fastfill.planning.candidate import Candidate
from fastfill.planning.figures import Model, weights
from fastfill.planning.rules import FIRST_RATIO, Rules, Settings, rules
from fastfill.serving import arguments
from fastfill.serving import memory as sizing
from fastfill.serving.flags import parse
from fastfill.serving.model import read
from fastfill.serving.profile import Profile
from sglang_fastfill.conditions import BY_ID, FLAG

_FEWEST_RUNNING, _MOST_RUNNING = 2048, 4096


@dataclass(frozen=True, slots=True)
class Deployment:
    """What does not change from candidate to candidate.

    Attributes:
        facts: What ``explain`` decides on.
        model: What time and memory depend on.
        rules: How its SGLang schedules.
        env: The server's environment with the path on.
        gpu_gib: Memory of one GPU.
        activation_mib: Of one prefill token, in MiB.
        fixed: Flags of the profile and the command line, words by name.
        context: The longest prompt and answer that are served; None for the model's own.
    """

    facts: Facts
    model: Model
    rules: Rules
    env: Mapping[str, str]
    gpu_gib: float
    activation_mib: float
    fixed: Mapping[str, str]
    context: int | None

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of attention, each with a scheduler of its own."""
        return self.facts.launch.dp if self.facts.launch.dp_attention else 1

    @property
    def page(self) -> int:
        """Tokens a page."""
        return self.facts.launch.page_size

    def stopped_by(self, candidate: Candidate) -> str:
        """The deployment condition that stops the path whatever a batch holds; "" if none does."""
        env = {name: value for name, value in self.env.items() if candidate.path or name != FLAG}
        asked = replace(self.facts.launch, chunk=candidate.chunk, radix=candidate.radix)
        facts = replace(self.facts, env=env, launch=asked)
        failed = [one.id for one in evaluate(facts) if one.status == "fail" and BY_ID[one.id].scope == "deployment"]
        if failed:
            return failed[0]
        return "" if candidate.path else "flag_off"

    def q_heads(self) -> int | None:
        """Query heads of one rank."""
        heads = rank_heads(self.model.q_heads, self.model.kv_heads, attention_ranks(self.facts.launch))
        return heads[0] if heads else None

    def settings(self, candidate: Candidate, plan: sizing.Plan, assumptions: Assumptions) -> Settings:
        """The scheduler's settings for a candidate, those of one data-parallel rank."""
        chunk = candidate.chunk // self.ranks if candidate.chunk > 0 else None
        tokens = int(assumptions.number("kv_tokens", self._kv_tokens(plan)))
        running = int(assumptions.number("max_running", self._running(tokens))) // self.ranks
        conservative = float(self.fixed.get("schedule-conservativeness", "1.0"))
        return Settings(
            chunk=chunk,
            max_prefill=candidate.max_prefill,
            page=self.page,
            radix=candidate.radix,
            mixed=self.facts.launch.mixed,
            overlap="disable-overlap-schedule" not in self.fixed,
            max_running=max(running, 1),
            kv_tokens=tokens // self.page * self.page,
            hybrid=self.model.hybrid,
            first_ratio=min(FIRST_RATIO * conservative, 1.0),
        )

    def memory(self, candidate: Candidate, longest: int, assumptions: Assumptions) -> sizing.Plan:
        """What a GPU must keep free for a candidate's largest pass.

        Args:
            longest: The longest sequence that is served, in tokens.
        """
        asked = self.facts.launch
        pass_ = sizing.largest_pass(
            chunk=candidate.chunk // self.ranks if candidate.chunk > 0 else candidate.chunk,
            max_prefill_tokens=candidate.max_prefill,
            longest_prompt=longest,
        )
        return sizing.plan(
            gpu_mib=self.gpu_gib * sizing.MIB_PER_GIB,
            single_pass=pass_,
            mib_per_token=self.activation_mib,
            tp=asked.tp,
            dp=asked.dp,
            dp_attention=asked.dp_attention,
            weight_bytes=weights(self.model, assumptions),
        )

    def _kv_tokens(self, plan: sizing.Plan) -> float | None:
        fraction = float(self.fixed.get("mem-fraction-static", plan.fraction))
        cache = plan.gpu_mib * fraction - (plan.weights_mib or 0.0)
        heads = max(self.model.kv_heads / attention_ranks(self.facts.launch), 1)
        bytes_each = 2 * self.model.full_layers * heads * self.model.head_dim
        bytes_each *= 1 if "fp8" in self.fixed.get("kv-cache-dtype", "fp8") else 2
        given = self.fixed.get("max-total-tokens")
        tokens = max(cache * 2**20 / bytes_each, 0.0)
        return min(tokens, float(given)) if given else tokens or None

    def _running(self, tokens: int) -> float:
        if "max-running-requests" in self.fixed:
            return float(self.fixed["max-running-requests"])
        context = self.context or self.model.context or 65536
        # 0.5.16: pool size over context length times 512, within these bounds.
        return float(min(max(tokens // context * 512, _FEWEST_RUNNING), _MOST_RUNNING))


def read_deployment(
    model: str, *, tp: int, stack: str, profile: Profile, words: list[str], gpu_gib: float
) -> Deployment:
    """Gather the facts of a deployment.

    Args:
        model: A checkpoint's folder, a config.json, or a name that is in the cache.
        words: SGLang's flags, over the profile's.

    Raises:
        UsageError: The model, the stack or a flag cannot be used.
    """
    merged = {name: _word(value) for name, value in profile.flags.items() if value is not False}
    merged |= {flag.name: " ".join(flag.values) for flag in parse(words)}
    for name in ("chunked-prefill-size", "max-prefill-tokens", "disable-radix-cache"):
        merged.pop(name, None)
    policy = merged.get("schedule-policy", "fcfs")
    if policy != "fcfs":
        raise UsageError(f"--schedule-policy {policy} is not modelled", where="SGLang's flags", next_step="use fcfs")
    release = releases.stack(stack)
    arguments.require([*(f"--{name}" for name in profile.flags), *words], release.sglang, "SGLang's flags")
    found = source.model(model, os.environ)
    asked = launch.from_flags([w for name, value in merged.items() for w in _words(name, value)], tp=tp, dp=None)
    full = found.shape.layers[0]
    if not (full.count and full.qk_head_dim and full.kv_heads and found.shape.q_heads):
        what = ", ".join(sorted(set(found.shape.missing.values()))) or "its attention layers are not known"
        raise UsageError(f"the model's config does not tell enough: {what}", where=model)
    facts = read(found.folder) if found.folder else None
    context = int(merged["context-length"]) if "context-length" in merged else profile.fastfill.longest_prompt
    return Deployment(
        facts=Facts(
            release=release,
            model=found.shape,
            layers=full,
            launch=asked,
            schedule=schedule(asked, int(gpu_gib * 1024), found.shape.context),
            aiter=aiter.of(release.aiter),
            scales=scales.read(found.folder, found.shape, release.scale_names),
            env=dict(profile.env),
        ),
        model=Model(
            name=model,
            architecture=found.shape.architecture,
            full_layers=full.count,
            q_heads=found.shape.q_heads,
            kv_heads=full.kv_heads,
            head_dim=full.qk_head_dim,
            weight_bytes=facts.weight_bytes if facts else None,
            quantised=found.shape.quantised,
            context=found.shape.context,
            hybrid=found.shape.count("linear") > 0,
        ),
        rules=replace(rules(release.sglang), prefix_fires=release.prefix == "gathers"),
        env=dict(profile.env),
        gpu_gib=gpu_gib,
        activation_mib=profile.fastfill.activation_mib_per_token,
        fixed=merged,
        context=context,
    )


def _word(value: Any) -> str:
    if value is True:
        return ""
    return " ".join(value) if isinstance(value, list) else str(value)


def _words(name: str, value: str) -> list[str]:
    return [f"--{name}", *value.split()]
