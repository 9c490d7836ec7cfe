"""The column table against headers of real exports, written out by hand."""

from __future__ import annotations

import pytest

from schemas.columns import column_spec, column_specs, is_pmu

K1 = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Mix Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "Context ID"
)
K1_KEYS = (
    "step_id,model_id,task_id,stream_id,name,op_type,accelerator_core,start,duration,wait_ns,"
    "block_dim,mix_block_dim,input_shapes,input_data_types,input_formats,output_shapes,output_data_types,output_formats,"
    "context_id"
)
PMU = (
    "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_icache_miss_rate,aiv_time(us),aiv_vec_ratio,"
    "cube_utilization(%),vec_time(us),mac_ratio,memory_bound,aic_l1_read_bw(GB/s),aiv_ub_read_bw(GB/s),"
    "aic_cube_fops,aiv_vec_fp32_ratio,total_cycles"
)


@pytest.mark.parametrize(
    ("header", "keys"),
    [
        (K1, K1_KEYS),
        (
            "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim",
            "step_id,name,op_type,accelerator_core,start,duration,wait_ns,block_dim",
        ),
        (
            "Step ID,Device_id,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Block Num,Mix Block Num",
            "step_id,device_id,name,op_type,op_state,accelerator_core,start,duration,block_num,mix_block_num",
        ),
        (
            "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
            "Task Duration(us),Task Wait Time(us),HF32 Eligible,Context ID",
            "device_id,model_id,task_id,stream_id,name,op_type,op_state,accelerator_core,start,"
            "duration,wait_ns,hf32_eligible,context_id",
        ),
        (
            "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)",
            "device_id,name,task_type,stream_id,task_id,duration,start,stop",
        ),
        (" name , START TIME (us),Duration( us )", "name,start,duration"),
        ("Name,Op Name,Model Name,,Infer ID", "name,Op Name,Model Name,Infer ID"),
        ("x,x,x", "x,x (2),x (3)"),
    ],
)
def test_headers(header: str, keys: str) -> None:
    assert [spec.key for spec in column_specs(header.split(","))] == keys.split(",")


def test_pmu_columns_are_known_and_left_out() -> None:
    assert all(is_pmu(header) for header in PMU.split(","))
    assert not any(is_pmu(header) for header in K1.split(","))
    assert column_specs(PMU.split(",")) == []
    specs = column_specs(PMU.split(","), pmu=True)
    assert [spec.key for spec in specs] == PMU.split(",")
    assert {spec.kind for spec in specs} == {"float"}


@pytest.mark.parametrize(
    ("header", "unit_ns"), [("Start Time(us)", 1000), ("Start Time(ns)", 1), ("start time (ms)", 10**6)]
)
def test_units(header: str, unit_ns: int) -> None:
    spec = column_spec(0, header)
    assert (spec.key, spec.kind, spec.unit_ns) == ("start", "time", unit_ns)


def test_plain_names_only_where_asked() -> None:
    for header, key in (("ts(ns)", "start"), ("dur_us", "duration"), ("End [ms]", "stop"), ("wait (us)", "wait_ns")):
        assert column_spec(0, header, plain=True).key == key
        assert column_spec(0, header).key == header
