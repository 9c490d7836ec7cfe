"""What a scheduler step does, as programs over a Rank: decode (DSpark), prefill and idle forwards.

The order is that of sglang 0.5.23: `_forward_decode` of the DSpark worker inside `Scheduler.run_batch`. On Ascend accept
to commit run eagerly after the verify replay (the verify epilogue is never built there).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass, field

from samples.config import BASE_NS, Config
from samples.kernels import K
from samples.model import Expert, Meeting, Program, Rank, Replay, Span, Task


@dataclass(slots=True)
class Request:
    slot: int
    prefix: int
    acc_len: int
    correct: int
    verify_len: int
    bonus: int
    drafts: list[int]


@dataclass(slots=True)
class Batch:
    """One forward of one attention-TP group. kind: decode, prefill, idle, or dp_idle (idle while others decode).

    number: its place among the decode forwards of the run, -1 for prefill and idle.
    """

    kind: str
    forward_ct: int
    requests: list[Request]
    number: int

    @property
    def bs(self) -> int:
        return len(self.requests)


@dataclass(slots=True)
class Step:
    """What the model knows of one forward of one rank, beside its tasks. Times are true ns."""

    batch: Batch
    run_batch: Span | None = None
    draft_span: Span | None = None
    verify_span: Span | None = None
    result_span: Span | None = None
    events: dict[str, int] = field(default_factory=dict)  # STEP/DRAFT/TARGET_VERIFY start and end, as the device saw
    observed: int = 0  # host time of observe_decode_step
    first_host: int = 0  # start of recv_requests
    inside: int = 0  # a host time inside run_batch, before the draft


def work_shape(config: Config, requests: list[Request], forward_id: int) -> str:
    """The suffix of detailed_annotations: sums over the requests, with the uniform verify width."""
    if not config.detailed_annotations:
        return ""
    w = config.width
    sk = [r.prefix + w * config.g_sk_width for r in requests]
    return f" g_sq={w * len(sk)} g_sqsq={w * w * len(sk)} g_sqsk={w * sum(sk)} g_sk={sum(sk)} forward_id={forward_id}"


def _optional(rank: Rank, stack: ExitStack, name: str) -> Span | None:
    return stack.enter_context(rank.span(name)) if rank.config.spans else None


def scheduler(rank: Rank, batches: list[Batch], steps: list[Step]) -> Program:
    """The scheduler's event loop over the batches. Fills `steps`."""
    config = rank.config
    unread: list[Task] = []
    for number, batch in enumerate(batches):
        step = Step(batch)
        steps.append(step)
        if config.duration_s:
            rank.t = max(rank.t, BASE_NS + round(number * config.duration_s * 1e9 / config.steps))
        rank.forward_ct, rank.phase, rank.part = batch.forward_ct, "other", ""
        step.first_host = rank.t
        rank.bs, rank.tokens = batch.bs, batch.bs * config.width
        with ExitStack() as stack:
            _optional(rank, stack, "scheduler.recv_requests")
            rank.work(18)
        with ExitStack() as stack:
            _optional(rank, stack, "scheduler.process_input_requests")
            rank.work(7)
        with ExitStack() as stack:
            _optional(rank, stack, "scheduler.get_next_batch_to_run")
            rank.work(55)
            with rank.span("gloo:all_gather"):
                rank.t = yield Meeting(f"gloo {number}", rank.t + rank.ns(30), 20_000)
            rank.work(15)
        with ExitStack() as stack:
            if config.with_stack:
                stack.enter_context(rank.span("sglang/srt/managers/scheduler.py(2210): run_batch", "python_function"))
            step.run_batch = _optional(rank, stack, "scheduler.run_batch")
            rank.work(20)
            step.inside = rank.t
            rank.work(3)
            yield from {"decode": decode, "prefill": prefill, "idle": idle, "dp_idle": dp_idle}[batch.kind](rank, step)
            with ExitStack() as inner:
                step.result_span = _optional(rank, inner, "copy_result_to_cpu")
                unread.append(rank.copy(8 * batch.bs, 5, to_host=True))
            rank.work(6)
        with ExitStack() as stack:
            _optional(rank, stack, "scheduler.process_batch_result")
            rank.work(4)
            if not config.overlap_schedule or len(unread) > 1:
                start = rank.t
                rank.t = max(rank.t + rank.ns(3), unread.pop(0).end + rank.ns(6))
                rank.cann("main", "AscendCL@aclrtSynchronizeEvent", start, rank.t)
            rank.work(45)


def decode(rank: Rank, step: Step) -> Program:
    config, batch, events = rank.config, step.batch, step.events
    rank.phase = "prelude"
    events["step_start"] = rank.event()
    rank.launch("range")
    events["draft_start"] = rank.event()
    rank.launch("fill")
    rank.copy(8 * config.ranks, 60)  # _fill_dp_moe_sync_metadata: two int64 host vectors
    rank.copy(8 * config.ranks, 60)
    rank.launch("clamp")  # resolve_draft_params
    rank.launch("le")
    stage = "TARGET_VERIFY" if config.old_span_names else "DRAFT"
    suffix = work_shape(config, batch.requests, 2 * batch.forward_ct + 1) if config.old_span_names else ""
    with ExitStack() as stack:
        step.draft_span = _optional(rank, stack, f"step[{stage} bs={batch.bs}{suffix}]")
        rank.phase = "draft"
        rank.launch("embed")
        yield from replay(rank, config.draft_model_id, draft_graph(rank))
    rank.phase = "sample"
    rank.launch("cat")
    events["draft_end"] = rank.event()
    rank.phase = "plan"
    rank.work(40)
    if config.plan_collective:
        yield from rank.collective("hcom_allGather_", "868", "world", 14)
    events["target_verify_start"] = rank.event()
    rank.phase = "prepare"
    rank.launch("copy")
    stage = "TARGET_VERIFY" if config.old_span_names else "VERIFY"
    with ExitStack() as stack:
        step.verify_span = _optional(
            rank, stack, f"step[{stage} bs={batch.bs}{work_shape(config, batch.requests, batch.forward_ct + 7)}]"
        )
        rank.phase = "verify"
        if config.with_stack:
            stack.enter_context(rank.span("nn.Module: DeepseekV4ForCausalLM_0", "python_function"))
        rank.launch("attn_meta")
        if config.host_delay_us and config.host_delay_rank in (-1, rank.rank):
            rank.drain_queue()
            with rank.span("aten::item"):
                rank.work(config.host_delay_us)
        if config.graphs and not config.recv_hook:
            yield from replay(rank, config.verify_model_id, verify_graph(rank))
        else:
            yield from verify_graph(rank)
    events["target_verify_end"] = rank.event()
    rank.phase = "tail"
    if not config.folded:
        yield from tail(rank, publish=True)
    events["step_end"] = rank.event()
    if "reqs" in config.components:
        rank.copy(8 * batch.bs, 4, stream=config.side_stream + 1, to_host=True)
    rank.part = "other"
    rank.launch("index_put")  # the future map of the next step
    rank.phase, rank.part = "other", ""
    step.observed = rank.t


def tail(rank: Rank, publish: bool) -> Program:
    """Accept to commit. In a graph (CUDA-like) when called from a replay."""
    config = rank.config
    rank.part = "accept"
    for name in ("argmax", "correct", "zeros"):
        rank.launch(name)
    if config.attention_tp > 1:
        rank.part = "tp_sync"
        for _ in range(3):
            yield from rank.collective("hcom_broadcast_", f"{512 + rank.rank // config.attention_tp:03d}", "tp", 9)
    rank.part = "finalize"
    rank.launch("finalize")
    rank.part = "out_tokens"
    for name in ("cast", "fill", "scatter"):
        rank.launch(name)
    if publish:
        rank.part = "other"
        rank.launch("index_put")
    rank.part = "commit"
    for _ in range(config.stages):
        rank.launch("wkv", 11 + config.commit_us / config.stages)
    for _ in range(config.stages):
        for name in ("norm", "rotary", "clamp_min", "cast", "index_put"):
            rank.launch(name)


def replay(rank: Rank, model_id: int, graph: Program) -> Program:
    """aclmdlRIExecuteAsync on the main thread, MODEL_EXECUTE, then the graph's tasks as the device reaches them."""
    config = rank.config
    rank.drain_queue()
    rank.work(9)
    call = rank.cann("main", "AscendCL@aclmdlRIExecuteAsync", rank.t, rank.t + rank.ns(24))
    rank.t = call.end
    ready = call.start + rank.ns(19)
    if config.model_execute:
        ready = rank.other(call, "MODEL_EXECUTE", "MODEL_EXECUTE", config.eager_stream, 1.2).end
        rank.tasks[-1].model_id = model_id
    for stream in (config.graph_stream, config.side_stream):
        rank.free[stream] = max(rank.free.get(stream, 0), ready, rank.free.get(config.eager_stream, 0))
        rank.next_task[-model_id * 1000 - stream] = 100
    rank.replay = Replay(model_id, rank.forward_ct, call)
    rank.replays.append(rank.replay)
    yield from graph
    rank.replay = None
    main = max(rank.free[config.graph_stream], rank.free[config.side_stream])
    rank.free[config.eager_stream] = max(rank.free.get(config.eager_stream, 0), main)


def draft_graph(rank: Rank) -> Program:
    for name in ("norm", "qkv", "attn", "proj", "norm", "shared_up", "swiglu", "shared_down", "add", "head"):
        rank.launch(name)
    yield from ()


def verify_graph(rank: Rank) -> Program:
    config = rank.config
    for _ in range(config.layers):
        yield from moe_layer(rank)
    rank.launch("norm")
    rank.launch("head")
    if config.folded:
        yield from tail(rank, publish=False)
        rank.part = ""


def moe_layer(rank: Rank) -> Program:
    config = rank.config
    late = config.delay_us / config.scale if rank.rank == config.slow_rank else 0.0
    for name, us in (("norm", 0.0), ("qkv", 0.0), ("attn", 26.0 + late), ("proj", 0.0), ("norm", 0.0), ("gate", 0.0)):
        last = rank.launch(name, us)
    beside = config.overlap_dispatch and not config.recv_hook
    stream = config.side_stream if beside else 0
    if beside:
        rank.other(None, "CAPTURE_RECORD", "EVENT_RECORD_SQE", last.stream, 0.02)
    if not config.recv_hook:
        for name in ("shared_up", "swiglu", "shared_down"):
            rank.launch(name, 0.0, stream, last.end if beside else 0)
    yield from expert_exchange(rank, "dispatch")
    for name in ("experts", "swiglu", "experts"):
        rank.launch(name)
    yield from expert_exchange(rank, "combine")
    if beside:
        joined = rank.other(
            None, "CAPTURE_WAIT", "EVENT_WAIT_SQE", last.stream, 0.02, ready=rank.free[config.side_stream]
        )
        rank.launch("add", ready=joined.end)
    else:
        rank.launch("add")


def expert_exchange(rank: Rank, op: str) -> Program:
    """Dispatch or combine of one layer: a kernel that waits inside, or (recv_hook) a send and a receive task."""
    config = rank.config
    index = len(rank.experts)
    key = f"{op} {index}"
    if not config.recv_hook:
        call = None
        with ExitStack() as stack:
            if rank.replay is None:
                stack.enter_context(rank.span(f"deep_ep::low_latency_{op}"))
                rank.work(6)
                call = rank.through_queue(f"aclnnMoeLowLatency{op.title()}V2", "Node@launch", op)
            task = yield from rank.meet_on_device(op, 8, call, key)
        issue = call.start if call else task.start
        rank.experts.append(Expert(op, rank.forward_ct, index, task, issue, task.start, "in_kernel_wait"))
        return
    with rank.span(f"{op}_a") as issue_range:
        sent = rank.launch(op, 6)
    for name in ("shared_up", "swiglu", "shared_down"):
        rank.launch(name)
    with rank.span(f"{op}_b") as hook_range:
        rank.work(4)
        call = rank.through_queue(f"{op}_recv", "Node@launch", f"{op}_low_latency_recv")
        task = yield from receive(rank, f"{op}_recv", call, key, sent)
    rank.experts.append(Expert(op, rank.forward_ct, index, task, issue_range.start, hook_range.start, "recv_hook"))


def receive(rank: Rank, name: str, call: Span, key: str, sent: Task) -> Generator[Meeting, int, Task]:
    """The receive task of a real hook: it ends when the last peer has sent."""
    start = rank.at(rank.config.eager_stream, call.end + rank.ns(4))
    arrived = yield Meeting(key, sent.end, 4000)
    end = max(start, arrived) + rank.ns(1.5)
    return rank.run(rank.make_kernel(K[name], rank.config.eager_stream, start, end, call))


def prefill(rank: Rank, step: Step) -> Program:
    rank.tokens, rank.phase = 512, "other"
    with ExitStack() as stack:
        _optional(rank, stack, f"step[EXTEND bs={step.batch.bs} toks=512]")
        for _ in range(rank.config.layers):
            for name in ("norm", "qkv", "flash", "proj", "add"):
                rank.launch(name)
            yield from rank.collective("hcom_allReduce_", "868", "world", 40)


def dp_idle(rank: Rank, step: Step) -> Program:
    """A rank without requests takes part in the collectives and expert exchanges of the others."""
    config = rank.config
    if config.plan_collective:
        yield from rank.collective("hcom_allGather_", "868", "world", 14)
    with ExitStack() as stack:
        _optional(rank, stack, "step[IDLE bs=0]")
        rank.launch("range")
        if config.graphs and not config.recv_hook:
            yield from replay(rank, config.verify_model_id, verify_graph(rank))
        else:
            yield from verify_graph(rank)


def idle(rank: Rank, step: Step) -> Program:
    with ExitStack() as stack:
        _optional(rank, stack, "step[IDLE bs=0]")
        rank.launch("range")
    yield from ()
