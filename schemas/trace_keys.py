"""Names in trace JSON: processes, categories, argument keys. Source: torch_npu and msprof exporters, Kineto."""

from __future__ import annotations

from schemas.timeline import Host

#: "none" in the id columns of the exporters (uint32 max): no model, no sub-task, a local rank.
NONE_ID = 4294967295

# Process names (metadata event `process_name`); pids differ by version and say nothing.
PYTHON = "Python"
PYTHON_GC = "Python GC"
CANN = "CANN"
HARDWARE = "Ascend Hardware"
COMMUNICATION = ("Communication", "HCCL")  # HCCL up to CANN 8.0
OVERLAP = "Overlap Analysis"

#: The device field of an exporter's pid that stands for the host.
HOST_DEVICE = 31

#: Keys of `Ascend Hardware` slices -> canonical keys, those of the CSV rows too.
HARDWARE_KEYS = {
    "Model Id": "model_id",
    "Task Type": "task_type",
    "Task Id": "task_id",
    "Batch Id": "batch_id",
    "Subtask Id": "subtask_id",
    "connection_id": "connection_id",
    "correlation": "connection_id",  # CUDA
}
#: The stream of a hardware slice under its names by version. It is told by the track.
STREAM_KEYS = ("Physic Stream Id", "Stream Id", "stream")
#: The device of a CUDA slice. It is told by the track.
DEVICE_KEYS = ("device",)

#: Keys of collectives and of their tasks on planes -> canonical keys.
COMMUNICATION_KEYS = {
    "model id": "model_id",
    "task id": "task_id",
    "context id": "context_id",
    "task type": "task_type",
    "connection_id": "connection_id",
}

#: Numbers of tasks on planes that the exporter writes as 0 or 0.5: real numbers, so always floats.
PLANE_FLOATS = frozenset({"duration estimated(us)", "bandwidth(GB/s)"})

#: Canonical keys with one type each; a value of another type goes under `<key>_raw`.
KEY_KINDS = {
    "model_id": "int",
    "task_id": "int",
    "batch_id": "int",
    "subtask_id": "int",
    "context_id": "int",
    "connection_id": "int",
    "task_type": "text",
}
#: Canonical keys whose value NONE_ID means absent.
NONE_ID_KEYS = frozenset({"model_id", "subtask_id"})

#: Categories (`cat`) of host events -> where they come from.
HOST_SOURCES = {
    "cpu_op": Host.FRAMEWORK,
    "user_annotation": Host.FRAMEWORK,
    "python_function": Host.PYTHON,
    "enqueue": Host.ENQUEUE,
    "dequeue": Host.DEQUEUE,
    "cuda_runtime": Host.CANN,
    "cuda_driver": Host.CANN,
}
#: The id that ties a host call to its task, by name.
CONNECTION_KEYS = ("connection_id", "correlation")
CORRELATION_KEYS = ("correlation_id",)

#: Categories of Kineto's device events; the threads they are on are streams of a GPU.
GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
#: Keys of the object form that only Kineto writes.
KINETO_KEYS = frozenset({"schemaVersion", "deviceProperties", "baseTimeNanoseconds", "distributedInfo", "traceName"})

#: Starts before 2000-01-01 are no epoch times.
EPOCH_FLOOR_NS = 946_684_800 * 10**9
