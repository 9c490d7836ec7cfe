"""The role table: names of the reference fit their roles, look-alikes do not, and a user's file stands over it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from schemas.errors import InputError
from schemas.roles import load_roles
from schemas.timeline import StringPool

FITS = [
    ("accept", "aclnnArgMax_ArgMaxV2AiCore_ArgMaxV2"),
    ("accept", "ArgMaxWithValue"),
    ("accept", "_fused_correct_drafts_and_bonus_kernel"),
    ("accept", "_chain_rejection_block_sum_kernel"),
    ("tp_sync", "hcom_broadcast__512_0_1"),
    ("tp_sync", "c10d::broadcast_"),
    ("finalize", "_finalize_accept_lens_kernel"),
    ("out_tokens", "aclnnCast_CastAiCore_Cast"),
    ("out_tokens", "aclnnInplaceFillScalar_FillAiCore_Fill"),
    ("out_tokens", "aclnnScatter_ScatterElementsAiCore_ScatterElements"),
    ("out_tokens", "TensorMove"),
    ("commit", "aclnnMatmul_MatMulV3Common_MatMulV3"),
    ("commit", "QuantBatchMatmulV3"),
    ("commit", "aclnnRmsNorm_RmsNorm_RmsNorm"),
    ("commit", "InplacePartialRotaryMul"),
    ("commit", "aclnnClampMin_MaximumAiCore_Maximum"),
    ("publish", "aclnnIndexPutImpl_IndexPutV2AiCore_IndexPutV2"),
    ("dispatch", "aclnnMoeLowLatencyDispatchV2_MoeLowLatencyDispatchV2_MoeLowLatencyDispatchV2"),
    ("dispatch", "MoeDistributeDispatchV2"),
    ("dispatch", "CamMoeDispatchNormal"),
    ("dispatch", "DispatchNormalA2"),
    ("dispatch", "zbal_dispatch_low_latency"),
    ("dispatch", "aclnnMoeDispatchLowlatencyZeroBuffer"),
    ("combine", "MoeLowLatencyCombineV2"),
    ("combine", "MoeDistributeCombineA2"),
    ("combine", "combine_low_latency"),
    ("receive", "dispatch_low_latency_recv"),
    ("fused_exchange", "aclnnDispatchFFNCombine_DispatchFFNCombine"),
    ("fused_exchange", "FusedDeepMoe"),
    ("collective", "hcom_allReduce__868_0_1"),
    ("copies", "MEMCPY_ASYNC"),
    ("wrapper", "scheduler.run_batch"),
    ("wrapper", "step[VERIFY bs=2]"),
    ("wrapper", "ProfilerStep#3"),
    ("wrapper", "nn.Module: Linear_0"),
    ("replay_call", "AscendCL@aclmdlRIExecuteAsync"),
    ("replay_call", "aclmdlRIExecuteAsync"),
    ("dispatch_issue", "dispatch_a"),
    ("dispatch_issue", "op_dispatch_a1"),
    ("combine_hook", "combine_b"),
    ("draft", "_markov_greedy_combine_kernel"),
    ("verify", "sparse_attn_sharedkv_metadata"),
]
DOES_NOT_FIT = [
    ("combine", "_markov_greedy_combine_kernel"),
    ("out_tokens", "hcom_broadcast__512_0_1"),
    ("commit", "hcom_broadcast__512_0_1"),
    ("out_tokens", "hcom_reduceScatter__512_0_1"),
    ("out_tokens", "_scatter_compact_to_strided_kernel"),
    ("commit", "AllgatherMatmulAllReduce"),
    ("dispatch", "aclnnDispatchFFNCombine_DispatchFFNCombine"),
    ("combine", "aclnnDispatchFFNCombine_DispatchFFNCombine"),
    ("dispatch", "DispatchLayout"),
    ("dispatch_issue", "dispatch_b"),
    ("wrapper", "aten::add"),
    ("wrapper", "scheduler"),
]


@pytest.mark.parametrize(("role", "name"), FITS)
def test_names_that_fit(role: str, name: str) -> None:
    assert load_roles().fits(role, name)
    assert load_roles().fits(role, name.upper()) == load_roles().fits(role, name.lower())


@pytest.mark.parametrize(("role", "name"), DOES_NOT_FIT)
def test_names_that_do_not(role: str, name: str) -> None:
    assert not load_roles().fits(role, name)


def test_mask_is_by_row() -> None:
    strings = StringPool()
    ids = strings.add_all(["Cast", "ArgMaxV2", "Cast", "", "Softmax"])
    assert load_roles().mask("accept", ids, strings).tolist() == [False, True, False, False, False]
    assert load_roles().mask("accept", np.empty(0, np.int32), strings).tolist() == []


def test_the_most_telling_role() -> None:
    roles = load_roles()
    assert roles.role_of("hcom_broadcast__1_0_1") == "tp_sync"
    assert roles.role_of("N/A", "MoeDistributeDispatchV2") == "dispatch"
    assert roles.role_of("SoftmaxV2") == ""


def test_a_users_file_replaces_a_role_or_adds_to_it(tmp_path: Path) -> None:
    path = tmp_path / "roles.toml"
    path.write_text("[accept]\npatterns = ['my_accept']\n[commit]\npatterns = ['my_commit']\nextend = true\n")
    roles = load_roles(path)
    assert roles.fits("accept", "MY_ACCEPT_kernel")
    assert not roles.fits("accept", "ArgMaxV2")
    assert roles.fits("commit", "my_commit")
    assert roles.fits("commit", "RmsNorm")
    assert roles.fits("dispatch", "MoeDistributeDispatchV2")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" {{{[[[", "is not TOML"),
        ("[acept]\npatterns = []\n", "unknown role 'acept'"),
        ("accept = 3\n", "is not a table"),
        ("[accept]\npatterns = 'x'\n", "a list of texts"),
        ("[accept]\npatterns = ['a(']\n", "no regular expression"),
        ("[accept]\npattern = ['a']\n", "a list of texts"),
    ],
)
def test_a_broken_file_is_one_line_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "roles.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_roles(path)
    assert "roles.txt" in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_roles(tmp_path / "roles.toml")
