"""DSpark step records as `GET /server_info` returns them (sglang 0.5.23, dspark_observability.py).

`internal_states` holds one element per DP rank. Records are msgspec structs with omit_defaults: a field that equals its
default is absent from the JSON. Milliseconds have four decimals; values above 1000 ms become null, so absent.
"""

from __future__ import annotations

from typing import Any

from samples.capture import Capture
from samples.programs import Request, Step

Json = dict[str, Any]


def _ms(ns: int) -> float | None:
    value = round(ns / 1e6, 4)
    return None if value > 1000 else value


def _request(request: Request) -> Json:
    return {
        "req_pool_index": request.slot,
        "prefix_len": request.prefix,
        "verify_len": request.verify_len,
        "acc_len": request.acc_len,
        "correct_drafts": request.correct,
        "cap_trim": 0,
        "bonus_token": request.bonus,
        "draft_tokens": request.drafts,
        "rid": f"req-{request.slot:04d}",
    }


def record(capture: Capture, step: Step, before: Step | None) -> Json:
    """One record; `before` is the decode step right before it, None after a prefill, an idle step or nothing."""
    config, batch, events = capture.config, step.batch, step.events
    on = config.components
    out: Json = {"forward_ct": batch.forward_ct}
    if "core" in on:
        tokens = sum(r.verify_len for r in batch.requests)
        if config.mode == "compact":
            tokens = -(-tokens // 4) * 4  # padded to the graph's size
        out |= {"bs": batch.bs, "mode": config.mode, "num_running_reqs": batch.bs, "num_verify_tokens": tokens}
        out["verify_tokens_graph_key"] = tokens
        if config.mode == "compact":
            out["budget"] = tokens - batch.bs
            out["verify_tokens_local"] = tokens
    if "step_cpu_time" in on and before is not None:
        out["step_cpu_ms"] = _ms(step.observed - before.observed)
    for component, key, what in (
        ("step_gpu_time", "step_gpu_ms", "step"),
        ("draft_gpu_time", "draft_gpu_ms", "draft"),
        ("target_verify_gpu_time", "target_verify_gpu_ms", "target_verify"),
    ):
        if component in on:
            out[key] = _ms(events[f"{what}_end"] - events[f"{what}_start"])
    if "reqs" in on:
        out["reqs"] = [_request(r) for r in batch.requests]
    return {k: v for k, v in out.items() if v is not None}


def records(capture: Capture) -> list[Json]:
    """The records of this rank's attention-TP group, those before and after the window included."""
    out, before = [], None
    limit = capture.config.records_before + capture.config.steps + capture.config.records_after
    for step in capture.steps:
        if step.batch.kind != "decode":
            before = None
            continue
        if step.batch.number < limit:
            out.append(record(capture, step, before))
        before = step
    return out


def payload(capture: Capture) -> Json:
    """The value of `dspark_info_record`."""
    config = capture.config
    return {
        "mode": config.mode,
        "gamma": config.gamma,
        "verify_num_draft_tokens": config.width,
        "components": sorted(config.components),
        "records": records(capture),
        "simulate_acc_len": None,
    }


def server_info(captures: list[Capture]) -> Json:
    """The whole answer of the server, reduced to the keys that matter here."""
    config = captures[0].config
    first_of_group = captures[:: config.attention_tp]
    return {
        "model_path": "/models/synthetic-moe",
        "tp_size": config.ranks,
        "dp_size": config.dp_size,
        "ep_size": config.ranks,
        "enable_dp_attention": config.dp_size > 1,
        "deepep_mode": "auto",
        "speculative_algorithm": "DSPARK",
        "version": "0.5.23",
        "internal_states": [{"last_gen_throughput": 0.0, "dspark_info_record": payload(c)} for c in first_of_group],
    }
