"""What says that memory ran out."""

from __future__ import annotations

import pytest
import torch

from rerank.kernels.memory import out_of_memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),  # pinned memory
        torch.distributed.DistBackendError(
            "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error, NCCL version 2.27.5\n"
            "Last error:\nCuda failure 2 'out of memory'"
        ),
    ],
)
def test_memory_ran_out(error: Exception) -> None:
    assert out_of_memory(error)


def test_a_cpus_memory_ran_out() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
        torch.distributed.DistBackendError("NCCL error: Duplicate GPU detected"),
        ValueError("out of memory"),
    ],
)
def test_what_else_goes_wrong_is_not_memory(error: Exception) -> None:
    assert not out_of_memory(error)
