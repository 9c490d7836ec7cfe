"""The kernels of the synthetic run: names, types and usual lengths. `{n}` tokens of the batch, `{bs}` requests.

Names follow the exporters (`aclnn<Api>_<L0 function>_<Kernel>`); Triton kernels keep their Python function's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    name: str
    op_type: str
    core: str = "AI_VECTOR_CORE"
    us: float = 3.0
    shapes: str = "{bs}"
    dtypes: str = "FLOAT"
    out: str = "{bs}"
    op: str = ""  # the torch op that launches it; "" for Triton kernels, which have none


def _aclnn(api: str, op_type: str, op: str, us: float, shapes: str = "{bs}", dtypes: str = "INT64") -> Kernel:
    return Kernel(f"aclnn{api}_{op_type}AiCore_{op_type}", op_type, "AI_VECTOR_CORE", us, shapes, dtypes, shapes, op)


def _matmul(us: float, k: int, n: int) -> Kernel:
    shapes = f"{{n}},{k};{k},{n}"
    return Kernel(
        "aclnnMatmul_MatMulV3Common_MatMulV3",
        "MatMulV3",
        "AI_CORE",
        us,
        shapes,
        "DT_BF16;DT_BF16",
        f"{{n}},{n}",
        "aten::mm",
    )


K: dict[str, Kernel] = {
    "range": _aclnn("Arange", "Range", "aten::arange", 1.8),
    "fill": _aclnn("InplaceFillScalar", "Fill", "aten::fill_", 1.44),
    "clamp": _aclnn("Clamp", "ClipByValueV2", "aten::clamp", 3.0, "{bs}", "FLOAT"),
    "le": _aclnn("LeScalar", "LessEqual", "aten::le", 2.2, "{bs}", "FLOAT"),
    "embed": _aclnn("Embedding", "GatherV2", "aten::embedding", 4.1, "{n},7168", "DT_BF16"),
    "copy": _aclnn("InplaceCopy", "TensorMove", "aten::copy_", 1.9, "{n}"),
    "cat": _aclnn("Cat", "ConcatD", "aten::cat", 2.6, "{n}"),
    "attn_meta": Kernel(
        "sparse_attn_sharedkv_metadata", "SparseAttnSharedkvMetadata", "AI_CPU", 9.0, op="npu::sparse_attn_sharedkv_metadata"
    ),
    "norm": Kernel("aclnnRmsNorm_RmsNorm_RmsNorm", "RmsNorm", us=3.1, shapes="{n},7168;7168", dtypes="DT_BF16;DT_BF16", out="{n},7168", op="npu::npu_rms_norm"),
    "qkv": _matmul(12.0, 7168, 1536),
    "attn": Kernel("sparse_attn_sharedkv", "SparseAttnSharedkv", "MIX_AIC", 26.0, "{n},64,512", "DT_BF16", "{n},64,512", "npu::sparse_attn_sharedkv"),
    "proj": _matmul(10.0, 8192, 7168),
    "gate": Kernel("aclnnMoeGatingTopK_MoeGatingTopK_MoeGatingTopK", "MoeGatingTopK", us=4.2, shapes="{n},256", out="{n},8", op="npu::npu_moe_gating_top_k"),
    "shared_up": _matmul(15.0, 7168, 4096),
    "swiglu": Kernel("aclnnSwiGlu_SwiGlu_SwiGlu", "SwiGlu", us=3.0, shapes="{n},4096", dtypes="DT_BF16", out="{n},2048", op="npu::npu_swiglu"),
    "shared_down": _matmul(8.0, 2048, 7168),
    "experts": Kernel("aclnnGroupedMatmulV5_GroupedMatmul_GroupedMatmul", "GroupedMatmul", "MIX_AIC", 21.0, "{n},7168;32,7168,4096", "INT8;INT8", "{n},4096", "npu::npu_grouped_matmul"),
    "add": _aclnn("Add", "Add", "aten::add", 2.1, "{n},7168", "DT_BF16"),
    "head": _matmul(31.0, 7168, 129280),
    "dispatch": Kernel("aclnnMoeLowLatencyDispatchV2_MoeLowLatencyDispatchV2_MoeLowLatencyDispatchV2", "MoeLowLatencyDispatchV2", "MIX_AIV", 9.0, "{n},7168;{n},8", "DT_BF16;INT32", "{n},7168", "deep_ep::low_latency_dispatch"),
    "combine": Kernel("aclnnMoeLowLatencyCombineV2_MoeLowLatencyCombineV2_MoeLowLatencyCombineV2", "MoeLowLatencyCombineV2", "MIX_AIV", 8.0, "{n},7168;{n},8", "DT_BF16;INT32", "{n},7168", "deep_ep::low_latency_combine"),
    "dispatch_recv": Kernel("dispatch_low_latency_recv", "dispatch_low_latency_recv", "MIX_AIV", 2.5, "{n},7168"),
    "combine_recv": Kernel("combine_low_latency_recv", "combine_low_latency_recv", "MIX_AIV", 2.5, "{n},7168"),
    # the tail, in the order of TargetVerifyExecutor.accept_and_finalize and commit_hidden
    "argmax": _aclnn("ArgMax", "ArgMaxV2", "aten::argmax", 14.0, "{n},129280", "DT_BF16"),
    "correct": Kernel("_fused_correct_drafts_and_bonus_kernel", "_fused_correct_drafts_and_bonus_kernel", us=4.4),
    "zeros": _aclnn("InplaceZero", "ZerosLike", "aten::zeros_like", 1.6),
    "finalize": Kernel("_finalize_accept_lens_kernel", "_finalize_accept_lens_kernel", us=3.7),
    "cast": _aclnn("Cast", "Cast", "aten::_to_copy", 1.7, "{n}"),
    "scatter": _aclnn("Scatter", "ScatterElements", "aten::scatter_", 5.2, "{n}"),
    "index_put": _aclnn("IndexPutImpl", "IndexPutV2", "aten::index_put_", 6.3, "{n},512", "DT_BF16"),
    "wkv": _matmul(11.0, 7168, 576),
    "rotary": Kernel("InplacePartialRotaryMul", "InplacePartialRotaryMul", us=3.4, shapes="{n},64;{n},64", out="{n},64", op="custom::inplace_partial_rotary_mul"),
    "clamp_min": _aclnn("ClampMin", "Maximum", "aten::clamp_min", 1.9, "{n}", "FLOAT"),
    # prefill
    "flash": Kernel("aclnnFusedInferAttentionScoreV3_FusedInferAttentionScore", "FusedInferAttentionScore", "MIX_AIC", 180.0, "{n},64,192", "DT_BF16", "{n},64,128", "npu::npu_fused_infer_attention_score"),
}  # fmt: skip
