"""The one-pass quantiser on a GPU: byte-equal to the torch reference, and how much faster than upstream's sequence.

    python bench/quantize.py [--sglang FOLDER] [--out FILE]

With ``--sglang``, a folder that holds SGLang 0.5.16 or its ``cache_ops.py`` alone, SGLang's own KV write is run too:
handed our fp8 bytes and no scale it must leave the cache as when it casts and divides by itself.

Medians in one run, GPU time (graph replay) and host launch time apart, as ratios beside upstream's sequence
(``contiguous``, view, ``to(float8_e4m3fn)``, for q, k and v) and beside the copy bandwidth measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "patches"))

import stamp
import torch

from sglang_fastfill import quantize, quantize_kernel

FP8 = torch.float8_e4m3fn
SOURCES = ("patches/sglang_fastfill/quantize.py", "patches/sglang_fastfill/quantize_kernel.py", "bench/quantize.py")
TOKENS = (1, 16, 64, 256, 1024, 2048, 4096, 16384, 60000)


def inputs(tokens: int, q_heads: int, kv_heads: int, strided: bool, dtype: Any = torch.bfloat16) -> Any:
    """q, k, v as (tokens, heads x 256): views into one projection, or contiguous."""
    sizes = [q_heads * 256, kv_heads * 256, kv_heads * 256]
    if strided:
        fused = torch.randn(tokens, sum(sizes), device="cuda", dtype=torch.float32).to(dtype)
        return fused.split(sizes, dim=1)
    return [torch.randn(tokens, size, device="cuda", dtype=torch.float32).to(dtype) for size in sizes]


def upstream(q: Any, k: Any, v: Any) -> Any:
    """SGLang's sequence, as 0.5.17 to 0.5.23 has it."""
    return [x.contiguous().view(x.shape[0], -1, 256).to(FP8) for x in (q, k, v)]


def gpu_time(function: Callable[[], Any], inner: int = 10, repeats: int = 15) -> float:
    """Median microseconds on the GPU: replays of a graph, so that launches cost nothing."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            function()
    times = []
    graph.replay()
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / inner)
    return statistics.median(times)


def host_time(function: Callable[[], Any], repeats: int = 200) -> float:
    """Median microseconds that the host spends in a call."""
    for _ in range(20):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        function()
        times.append((time.perf_counter_ns() - start) / 1000)
        torch.cuda.synchronize()
    return statistics.median(times)


def reference(x: Any, scale: Any) -> Any:
    """The saturating torch reference, on the GPU."""
    y = x.float() if scale is None else x.float() / scale.float()
    return y.clamp(-448.0, 448.0).to(FP8)


def same(got: Any, want: Any) -> bool:
    """Equal bytes, or NaN on both sides."""
    a, b = got.view(torch.uint8), want.view(torch.uint8)
    both_nan = got.float().isnan() & want.float().isnan()
    return bool(((a == b) | both_nan).all())


def check() -> list[str]:
    """Every case of correctness; returns what was checked."""
    done = []
    scales = [torch.ones(1), torch.tensor(1.0), torch.tensor(0.5), torch.tensor([2.0]), torch.tensor(0.037)]
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for tokens in (0, 1, 2, 63, 64, 65, 257, 2048, 2049, 5000):
            for q_heads, kv_heads in ((1, 1), (4, 2), (16, 1), (32, 2)):
                for strided in (True, False):
                    for number, scale in enumerate(scales):
                        if number and tokens not in (65, 2049):
                            continue
                        k_scale, v_scale = scale.cuda(), scales[-1 - number].cuda()
                        q, k, v = inputs(tokens, q_heads, kv_heads, strided, dtype)
                        for x in (q, k, v):
                            x.mul_(3)
                            x[:1, :6] = torch.tensor([1e4, -1e4, 448.0, 470.0, float("nan"), float("inf")])
                        count = torch.zeros(1, dtype=torch.int64, device="cuda")
                        torch.empty(1 << 22, dtype=torch.uint8, device="cuda").fill_(0x55)  # poison what is reused
                        out = quantize_kernel.quantize_qkv(q, k, v, k_scale, v_scale, count)
                        wants = [reference(q, None), reference(k, k_scale), reference(v, v_scale)]
                        label = f"{dtype} tokens={tokens} heads={q_heads}/{kv_heads} strided={strided} scale={number}"
                        for name, got, want, x, s in zip(
                            "qkv", out, wants, (q, k, v), (None, k_scale, v_scale), strict=True
                        ):
                            assert got.is_contiguous() and got.shape == x.shape, label
                            assert same(got, want), f"{name} {label}"
                            exact = x.double() if s is None else x.double() / s.double()
                            finite = exact.abs() <= 448
                            error = (got.double() - exact).abs()[finite]
                            bound = exact.abs()[finite] / 16 + 2.0**-10
                            assert bool((error <= bound).all()), f"{name} beyond rounding: {label}"
                        scaled = [(k.float() / k_scale.float()).abs(), (v.float() / v_scale.float()).abs()]
                        beyond = sum(int((~(x <= 448)).sum()) for x in scaled)
                        assert int(count) == beyond, f"count {int(count)} != {beyond}: {label}"
                        done.append(label)
    return done


def sync_free() -> None:
    """The call never makes the host wait for the device."""
    q, k, v = inputs(1024, 8, 1, True)
    one, count = torch.ones(1, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    quantize_kernel.quantize_qkv(q, k, v, one, one, count)
    torch.cuda.set_sync_debug_mode("error")
    quantize_kernel.quantize_qkv(q, k, v, one, one, count)
    quantize.quantize_qkv(q, k.view(1024, 1, 256), v.view(1024, 1, 256), 8, 1, one, one, count)
    torch.cuda.set_sync_debug_mode("default")


def check_kv_write(folder: Path) -> int:
    """SGLang's fused KV write, given our bytes and given bf16 with scales; returns the number of cases."""
    import importlib.util

    (file,) = folder.rglob("cache_ops.py")
    spec = importlib.util.spec_from_file_location("cache_ops", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases = 0
    for scale in (1.0, 0.5, 2.0, 0.037, 0.0117):
        for kv_heads, page in ((1, 16), (2, 1), (2, 16), (4, 64)):
            tokens, one = 999, torch.tensor([scale], device="cuda")
            q, k, v = inputs(tokens, 4, kv_heads, True)
            count = torch.zeros(1, dtype=torch.int64, device="cuda")
            _, k8, v8 = quantize_kernel.quantize_qkv(q, k, v, one, one, count)
            slots = torch.randperm(2048, device="cuda")[:tokens]
            caches = [torch.zeros(2048 // page, page, kv_heads, 256, device="cuda").to(FP8) for _ in range(4)]

            def heads(x: Any, kv_heads: int = kv_heads) -> Any:
                return x.view(-1, kv_heads, 256)

            module.launch_reshape_and_cache_flash(heads(k), heads(v), *caches[:2], slots, k_scale=one, v_scale=one)
            module.launch_reshape_and_cache_flash(heads(k8), heads(v8), *caches[2:], slots)
            for a, b in zip(caches[:2], caches[2:], strict=True):
                assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), (
                    f"scale {scale} heads {kv_heads} page {page}"
                )
                assert bool(a.view(torch.uint8).any())
            cases += 1
    return cases


def copy_bandwidth() -> float:
    """Bytes read and written a second by the fastest of three large copies, TB/s."""
    a = torch.empty(1 << 31, dtype=torch.bfloat16, device="cuda")
    b = torch.empty_like(a)
    moved = 2 * a.numel() * a.element_size()
    a32, b32 = a.view(torch.float32), b.view(torch.float32)
    ways = (lambda: b.copy_(a), lambda: torch.neg(a, out=b), lambda: torch.neg(a32, out=b32))
    return max(moved / gpu_time(way, inner=3) / 1e6 for way in ways)


def measure() -> list[dict[str, Any]]:
    """Ratios for every size, head count and layout."""
    rows = []
    one = torch.ones(1, device="cuda")
    count = torch.zeros(1, dtype=torch.int64, device="cuda")
    for q_heads, kv_heads in ((4, 1), (8, 1), (16, 1), (32, 2)):
        for strided in (True, False):
            for tokens in TOKENS:
                q, k, v = inputs(tokens, q_heads, kv_heads, strided)

                def ours(q: Any = q, k: Any = k, v: Any = v) -> Any:
                    return quantize_kernel.quantize_qkv(q, k, v, one, one, count)

                def theirs(q: Any = q, k: Any = k, v: Any = v) -> Any:
                    return upstream(q, k, v)

                mine, base = gpu_time(ours), gpu_time(theirs)
                moved = 3 * (q.numel() + k.numel() + v.numel())
                rows.append(
                    {
                        "q_heads": q_heads,
                        "kv_heads": kv_heads,
                        "strided": strided,
                        "tokens": tokens,
                        "gpu_us": round(mine, 2),
                        "upstream_gpu_us": round(base, 2),
                        "gpu_ratio": round(base / mine, 2),
                        "tb_per_s": round(moved / mine / 1e6, 3),
                        "host_us": round(host_time(ours), 1),
                        "upstream_host_us": round(host_time(theirs), 1),
                    }
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result file here")
    parser.add_argument("--sglang", type=Path, help="also run SGLang's own KV write from this folder")
    parser.add_argument("--check-only", action="store_true", help="check, and measure nothing")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    checked = check()
    sync_free()
    print(f"correct in {len(checked)} cases, no synchronisation")
    written = check_kv_write(arguments.sglang) if arguments.sglang else 0
    print(f"SGLang's KV write: the same cache in {written} cases" if written else "SGLang's KV write: not run")
    if arguments.check_only:
        return
    bandwidth = copy_bandwidth()
    rows = measure()
    for row in rows:
        row["of_copy"] = round(row["tb_per_s"] / bandwidth, 3)
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth:.2f} TB/s")
    print("heads strided tokens   GPU µs upstream  ratio  of copy  host µs upstream")
    for r in rows:
        print(
            f"{r['q_heads']:3}/{r['kv_heads']} {r['strided']!s:6} {r['tokens']:7} {r['gpu_us']:9.2f} "
            f"{r['upstream_gpu_us']:8.2f} {r['gpu_ratio']:6.2f} {r['of_copy']:7.1%} {r['host_us']:8.1f} "
            f"{r['upstream_host_us']:8.1f}"
        )
    if arguments.out:
        import triton

        stamp.write(
            arguments.out,
            "fastfill.quantize_bench/1",
            "python bench/quantize.py --sglang FOLDER --out results/quantize-nvidia-h200.json",
            list(SOURCES),
            device=torch.cuda.get_device_name(),
            torch=torch.__version__,
            triton=triton.__version__,
            cases_checked=len(checked),
            kv_write_cases_checked=written,
            copy_tb_per_s=round(bandwidth, 3),
            rows=rows,
        )


if __name__ == "__main__":
    main()
