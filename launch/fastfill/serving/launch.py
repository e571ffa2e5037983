"""From a profile and the user's words to a checked launch: reads the model's config, computes the memory, decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError
from fastfill.serving import checks, command, flags, keys, memory, model
from fastfill.serving.checks import Finding, Installed
from fastfill.serving.command import Command
from fastfill.serving.flags import Flag
from fastfill.serving.memory import Plan
from fastfill.serving.profile import Profile
from fastfill.serving.settings import Settings, settle
from fastfill.serving.switch import thrown
from sglang_fastfill.conditions import FLAG


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        profile: The merged profile.
        options: Options of ``serve`` by SGLang's flag name, only those that were given.
        extra: The words after ``--``.
        env: Variables given with ``--env``.
        longest_prompt: Overrides the profile's, in tokens.
        state_dir: Overrides the default folder.
        allow: Ids of refusals that are accepted.
        keys: SGLang's key flags and the keys; they go to the server through a file.
    """

    profile: Profile
    options: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    longest_prompt: int | None = None
    state_dir: Path | None = None
    allow: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict, repr=False)


class Launch(NamedTuple):
    """A launch that may be run, unless a finding refuses it."""

    command: Command
    settings: Settings
    memory: Plan | None
    findings: list[Finding]
    state_dir: Path

    @property
    def port(self) -> int:
        """The port that the server will listen on."""
        return self.settings.number("port", 30000)

    @property
    def host(self) -> str:
        """The address that the server will listen on."""
        return self.settings.text("host", "127.0.0.1")


def prepare(request: Request, *, environ: dict[str, str], python: str, installed: Installed | None = None) -> Launch:
    """Decide everything about a launch; runs nothing and writes nothing.

    Raises:
        UsageError: No model, a setting given twice, a value that is no number, or no room for the longest prompt.
    """
    extra = flags.parse(request.extra)
    first = settle(request.profile, options=request.options, extra=extra, env=request.env, inherited=environ)
    if not first.text("model-path"):
        raise UsageError(
            "no model is given", where="--model", next_step="add it, with a folder or a Hugging Face id (ORG/NAME)"
        )
    folder = model.find(first.text("model-path"), environ)
    facts = model.read(folder) if folder is not None else None
    own = facts.context_length if facts is not None else None
    context, plan, computed = _sizes(request, first, facts)
    place = command.state_dir(first.number("port", 30000), environ, request.state_dir)
    kit = command.kit_env(place, forced_fallback=request.profile.fastfill.forced_fallback)
    settings = settle(
        request.profile, options=request.options, extra=extra, env={**kit, **request.env}, inherited=environ
    )
    mine = {flag.name for flag in extra}
    ours = tuple(flag for flag in settings.flags if flag.name not in mine)
    theirs = tuple(flag for flag in settings.flags if flag.name in mine)
    if request.keys and "config" in mine:
        raise UsageError(
            "API keys from files and --config: SGLang reads one such file",
            where="--config",
            next_step="put the keys in yours, and leave the key files out",
        )
    settings = settings._replace(flags=ours + tuple(computed) + theirs)
    names = list(dict.fromkeys([*request.profile.env, *kit, *request.env]))
    findings = [*checks.check(settings, facts, installed), *_memory_findings(first, plan, context, own)]
    switch = thrown(place)
    if switch is not None and settings.env_on(FLAG):
        findings.append(switch)
    return Launch(
        command.build(
            settings._replace(flags=settings.flags + tuple(keys.flags(place, request.keys))), names=names, python=python
        ),
        settings,
        plan,
        checks.allow(findings, request.allow),
        place,
    )


def _sizes(request: Request, settings: Settings, facts: model.ModelFacts | None) -> tuple[int, Plan, list[Flag]]:
    """The context length that is served, the memory plan, and the flags that follow from them."""
    kit = request.profile.fastfill
    chunk = settings.number("chunked-prefill-size", 16384)
    max_prefill = settings.number("max-prefill-tokens", 16384)
    own = facts.context_length if facts is not None else None
    computed: list[Flag] = []
    context = settings.number("context-length", 0)
    if context and request.longest_prompt:
        raise UsageError(
            "--longest-prompt and --context-length say the same thing",
            where="--longest-prompt, --context-length",
            next_step="give one of them",
        )
    if not context:
        # With chunking on no prompt runs in one pass, so the profile's bound on a pass bounds no prompt.
        bound = kit.longest_prompt if chunk <= 0 else None
        wanted = request.longest_prompt or (min(bound, own or bound) if bound else None)
        context = wanted or own or 0
        if wanted:
            computed.append(Flag("context-length", (str(wanted),), ("--context-length", str(wanted))))
    plan = memory.plan(
        gpu_mib=kit.gpu_memory_gib * memory.MIB_PER_GIB,
        single_pass=memory.largest_pass(chunk=chunk, max_prefill_tokens=max_prefill, longest_prompt=context),
        mib_per_token=kit.activation_mib_per_token,
        tp=settings.number("tp-size", 1),
        dp=settings.number("dp-size", 1),
        dp_attention=settings.given("enable-dp-attention"),
        decode_graph_batch=settings.number("cuda-graph-max-bs-decode", 512),
        vision=None if facts is None or settings.given("language-only") else facts.vision,
        weight_bytes=None if facts is None else facts.weight_bytes,
    )
    if not settings.given("mem-fraction-static"):
        needed = plan.cache_mib
        if plan.fraction <= 0 or (needed is not None and needed <= 0):
            raise UsageError(
                f"a pass of {plan.single_pass_tokens} tokens leaves no room for weights and KV cache",
                where=f"profile {request.profile.name}",
                detail="\n".join(plan.table()),
                next_step="lower --longest-prompt, raise --tp, or use a profile that splits prompts (balanced)",
            )
        value = f"{plan.fraction:.3f}"
        computed.append(Flag("mem-fraction-static", (value,), ("--mem-fraction-static", value)))
    return context, plan, computed


def _memory_findings(settings: Settings, plan: Plan, context: int, own: int | None) -> list[Finding]:
    findings: list[Finding] = []
    tokens = plan.single_pass_tokens
    if settings.given("mem-fraction-static"):
        text = settings.text("mem-fraction-static")
        try:
            given = float(text)
        except ValueError:
            raise UsageError(
                f"--mem-fraction-static {text} is not a number",
                where="SGLang's flags",
                next_step="leave it out: it is computed from the longest prompt",
            ) from None
        if given > plan.fraction:
            what = f"--mem-fraction-static {text}: a pass of {tokens} tokens may need more than that leaves"
            fix = f"leave it out (the sum says {plan.fraction:.3f}), or lower --longest-prompt"
            findings.append(Finding("memory_fraction", "warn", what, fix))
    if settings.number("chunked-prefill-size", 16384) <= 0 and not context:
        what = f"chunking is off and the longest prompt is not known: more than {tokens} tokens may run out of memory"
        findings.append(Finding("longest_prompt_unknown", "warn", what, "give --longest-prompt"))
    if own is not None and context > own:
        what = f"the longest prompt is {context} tokens; the model was made for {own}"
        findings.append(Finding("context_beyond_model", "warn", what, f"give --longest-prompt {own}"))
    return findings
