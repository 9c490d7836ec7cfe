"""DSpark step records as columns: the fields of `DecodeStepRecord` and `ReqDetail` in SGLang's
`srt/speculative/dspark_components/dspark_observability.py` (0.5.23), exported by `GET /server_info` under
`internal_states[i]["dspark_info_record"]`, one payload per DP rank. Fields equal to their default are absent there.
A record holds no time of day: only durations and a forward counter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.timeline import Int64

Float64 = npt.NDArray[np.float64]

#: Integers of a record; NULL where absent, null or the default -1.
RECORD_INTS = (
    "forward_ct",  # Scheduler.forward_ct: +1 on every run_batch, prefill and idle included
    "bs",  # requests of this DP rank in the step
    "budget",  # verify-token budget of the confidence scheduler
    "lag_steps",
    "num_running_reqs",  # the same as bs
    "num_verify_tokens",
    "verify_tokens_local",
    "verify_tokens_dp_synced",
    "verify_tokens_graph_key",
)
#: Numbers of a record; NaN where absent, null or not a number. `*_ms` are ms, rounded to 0.1 us by SGLang.
RECORD_FLOATS = (
    "predicted_step_ms",
    "predicted_theta",
    "step_cpu_ms",  # host time from the previous step's observation to this one's: it looks back
    "step_gpu_ms",  # device events, current stream
    "draft_gpu_ms",
    "target_verify_gpu_ms",
)
RECORD_TEXTS = ("mode",)  # static | cap-accept | compact

#: Integers of one request (`reqs[]`).
REQUEST_INTS = (
    "req_pool_index",
    "prefix_len",  # committed length before this step
    "verify_len",
    "acc_len",  # accepted drafts + 1 bonus token: what the step commits for this request
    "correct_drafts",
    "cap_trim",
)
REQUEST_FLOATS = ("confidence", "survival")  # lists, one number per draft token
REQUEST_TOKENS = ("bonus_token", "draft_tokens")  # what users wrote and got: only with --with-token-ids
REQUEST_ID = "rid"  # only with --with-request-ids

PAYLOAD_FIELDS = ("mode", "gamma", "verify_num_draft_tokens", "components", "records", "simulate_acc_len")

#: What of `/server_info` says under which conditions a run was measured (article 000, controlled experiments).
#: Keys of SGLang's ServerArgs; nothing else of the reply is kept (it may hold keys and addresses).
SERVER_FACTS = (
    "version",
    "model_path",
    "served_model_name",
    "revision",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "device",
    "tp_size",
    "dp_size",
    "ep_size",
    "pp_size",
    "nnodes",
    "moe_dp_size",
    "attn_cp_size",
    "enable_dp_attention",
    "enable_dp_lm_head",
    "moe_dense_tp_size",
    "attention_backend",
    "page_size",
    "context_length",
    "max_running_requests",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "disaggregation_mode",
    "disable_overlap_schedule",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_dspark_block_size",
    "moe_a2a_backend",
    "moe_runner_backend",
    "deepep_mode",
    "enable_two_batch_overlap",
    "enable_single_batch_overlap",
    "disable_cuda_graph",
    "cuda_graph_bs",
    "cuda_graph_max_bs",
    "disable_cuda_graph_padding",
    "enable_torch_compile",
)


@dataclass
class RankRecords:
    """The records of one DP rank in order of forward_ct. Arrays are [n].

    ints: int64 by name (RECORD_INTS), NULL where absent; floats: float64 by name (RECORD_FLOATS), NaN where absent;
    mode: the payload's, "" where unknown; modes: per record, "" = as the payload;
    verify_width: `verify_num_draft_tokens`, or NULL; reqs: per record the request objects as read, or None.
    """

    source: str
    index: int  # position among the ranks of the file = DP rank
    ints: dict[str, Int64]
    floats: dict[str, Float64]
    modes: list[str]
    reqs: list[list[dict[str, Any]] | None]
    mode: str = ""
    gamma: int = -1
    verify_width: int = -1
    simulate_acc_len: float | None = None
    components: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.modes)

    @property
    def forward_ct(self) -> Int64:
        return self.ints["forward_ct"]

    def mode_of(self, row: int) -> str:
        return self.modes[row] or self.mode


@dataclass
class RecordFile:
    """What one `--dspark` file holds. server: the SERVER_FACTS it states; damage: the warnings that are
    about its bytes; damaged: there is one."""

    source: str
    ranks: list[RankRecords]
    server: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    damaged: bool = False
    damage: list[str] = field(default_factory=list)

    def for_rank(self, rank: int) -> RankRecords | None:
        """The records of a rank: `internal_states[rank // (tp_size // dp_size)]` where the sizes are known (the peers
        of an attention-TP group share a record); else one list serves every rank; else list order. None: there is none.
        """
        tp, dp = self.server.get("tp_size"), self.server.get("dp_size")
        if isinstance(tp, int) and isinstance(dp, int) and 0 < dp <= tp:
            index = rank // (tp // dp)
        else:
            index = 0 if len(self.ranks) == 1 else rank
        return self.ranks[index] if 0 <= index < len(self.ranks) else None
