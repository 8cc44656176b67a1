"""Errors that mean out of memory are recognised on CPUs, on GPUs and in NCCL."""

from __future__ import annotations

import pytest
import torch

from rerank.kernels.memory import out_of_memory

RAN_OUT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),  # pinned memory
    torch.distributed.DistBackendError(
        "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error, NCCL version 2.27.5\n"
        "Last error:\nCuda failure 2 'out of memory'"
    ),
]
ELSE = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    torch.distributed.DistBackendError("NCCL error: Duplicate GPU detected"),
    ValueError("out of memory"),
]


@pytest.mark.parametrize("error", [*RAN_OUT, *ELSE], ids=str)
def test_out_of_memory_recognises_only_such_errors(error: Exception) -> None:
    assert out_of_memory(error) == (error in RAN_OUT)
