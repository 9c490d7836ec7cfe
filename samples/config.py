"""What a synthetic run is made of. Every field has a default; the same configuration gives the same bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.errors import UsageError

#: Components of SGLANG_DSPARK_DEBUG_DUMP (sglang 0.5.23, dspark_observability.py).
COMPONENTS = ("core", "step_cpu_time", "step_gpu_time", "draft_gpu_time", "target_verify_gpu_time", "reqs")

BASE_NS = 1_792_454_400_123_456_789  # 2026-10-20, the true time at which the simulation starts


@dataclass(frozen=True)
class Config:
    """A run of `ranks` ranks (DP attention, expert-parallel MoE) over `steps` decode steps in the profile window."""

    ranks: int = 2
    steps: int = 6  # decode steps inside the window
    seed: int = 1

    # The batch and the records
    bs: int | tuple[int, ...] = 0  # 0: varies from step to step; N: constant; several: taken in turn
    max_bs: int = 8
    gamma: int = 3  # draft tokens; the verify width is gamma + 1
    mode: str = "static"  # static | compact
    accept_rate: float = 0.7  # chance that a drafted token is accepted, each after the one before
    first_forward_ct: int = 1200  # of the first step that is simulated, before the window
    records_before: int = 3  # decode steps with a record before the window
    records_after: int = 2
    components: tuple[str, ...] = COMPONENTS
    prefill_before: tuple[int, ...] = ()  # decode steps of the window (0-based) that a prefill precedes
    idle_before: tuple[int, ...] = ()  # ... that an idle forward precedes
    dp_idle: tuple[tuple[int, int], ...] = ()  # (rank, decode step of the window): idle while the others decode
    attention_tp: int = 1  # ranks of one attention-TP group share a batch and one record list

    # The host
    start_step: bool = False  # the profile starts inside run_batch of the first step and ends inside the one after
    overlap_schedule: bool = False  # results of a step are read after the next one is submitted
    host_delay_us: float = 0.0  # before the verify replay is called
    host_delay_rank: int = -1  # -1: every rank
    duration_s: float = 0.0  # > 0: steps are spread evenly over this time (for drift)
    old_span_names: bool = False  # both forwards are step[TARGET_VERIFY ...]
    detailed_annotations: bool = True
    g_sk_width: bool = True  # g_sk counts the verify width of each request, as the NPU path does
    with_stack: bool = False  # a few python_function frames around the spans
    late_start: tuple[int, ...] = ()  # decode steps by which the profile of each rank starts later
    spans: bool = True  # False: a profile without record_function ranges

    # The device
    layers: int = 2  # MoE layers of the target
    stages: int = 3  # draft stages that commit writes the hidden state for
    scale: float = 5.0  # how much longer the kernels of the two graphs are than those of one small batch
    eager_stream: int = 43
    graph_stream: int = 43  # main stream of the replays
    side_stream: int = 44
    draft_model_id: int = 46
    verify_model_id: int = 47
    graphs: bool = True  # False: the target runs eagerly
    model_execute: bool = True  # False: an exporter that leaves MODEL_EXECUTE out
    overlap_dispatch: bool = True  # shared experts run on the side stream while dispatch is in flight
    recv_hook: bool = False  # dispatch_a/dispatch_b ranges with a receive task of their own (implies eager)
    folded: bool = False  # CUDA-like: accept to commit are part of the verify graph
    commit_us: float = 0.0  # extra time of the commit projections
    slow_rank: int = -1  # this rank reaches every dispatch `delay_us` later
    delay_us: float = 0.0
    plan_collective: bool = True  # one hcom_allGather_ per step over all ranks

    # The clocks: exported = true + offset + drift x (true - BASE_NS)
    offsets_ms: tuple[float, ...] = ()  # per rank, how far its clock is ahead; absent = 0
    drift_ppm: tuple[float, ...] = ()
    same_host: bool | None = None  # None: where no clock differs
    jitter_ns: int = 2000  # ends of one collective differ by up to this
    device_shift_us: float = 0.0  # the device's clock against the host's, in every rank

    # The export
    trace: bool = True  # trace_view.json; False: CSV only
    level0: bool = False
    sub_ns: bool = True  # `dur` of device slices in the trace has digits below a nanosecond
    block_num: bool = True  # K4 header (Block Num); False: K3 (Block Dim)
    extra: dict[str, str] = field(default_factory=dict)  # ENV_VARIABLES of profiler_metadata.json

    @property
    def width(self) -> int:
        """Verify tokens per request (`verify_num_draft_tokens`)."""
        return self.gamma + 1

    @property
    def dp_size(self) -> int:
        return self.ranks // self.attention_tp

    @property
    def one_host(self) -> bool:
        return not any(self.offsets_ms) and not any(self.drift_ppm) if self.same_host is None else self.same_host

    @staticmethod
    def device(rank: int) -> int:
        """The device of a rank: 16 per host."""
        return rank % 16

    def offset_ns(self, rank: int) -> int:
        return round(self.offsets_ms[rank] * 1_000_000) if rank < len(self.offsets_ms) else 0

    def drift(self, rank: int) -> float:
        return self.drift_ppm[rank] if rank < len(self.drift_ppm) else 0.0

    def exported(self, rank: int, true_ns: int) -> int:
        """The time that the rank's files show for a true time."""
        return true_ns + self.offset_ns(rank) + round((true_ns - BASE_NS) * self.drift(rank) / 1e6)

    def check(self) -> None:
        """Raises UsageError where the options can't be together."""
        if self.ranks < 1 or self.steps < 1 or self.layers < 1 or self.gamma < 1:
            raise UsageError("a sample needs at least one rank, step, layer and draft token")
        if self.ranks % self.attention_tp:
            raise UsageError(f"{self.ranks} ranks can't form attention-TP groups of {self.attention_tp}")
        if self.mode not in ("static", "compact"):
            raise UsageError(f"mode is static or compact, not {self.mode}")
        if self.folded and (self.recv_hook or not self.graphs or self.attention_tp > 1):
            raise UsageError("a folded tail needs a graph, no recv_hook and an attention TP of 1")
        if self.dp_idle and self.attention_tp > 1:
            raise UsageError("dp_idle needs an attention TP of 1")
        if self.start_step and self.idle_before + self.prefill_before:
            raise UsageError("start_step counts decode steps here: leave prefill and idle steps out")
        if unknown := set(self.components) - set(COMPONENTS):
            raise UsageError(f"unknown components: {', '.join(sorted(unknown))}; known: {', '.join(COMPONENTS)}")
