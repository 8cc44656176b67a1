#!/bin/bash
# A training on all GPUs of two machines; the lists are on a disk that both see:
#   sbatch configs/slurm/train.sh scripts/train.py --config configs/msmarco/smoothi.yaml
# `-m rerank rerank --model ... --lists ... --output ...` in place of the script shares out the lists to be scored.
# Three minutes before its time is over comes SIGTERM, and a checkpoint is written; killed or out of time, the same command
# resumes.
#SBATCH --job-name=rerank
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@180
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # srun has not taken it from sbatch since Slurm 22.05
export MASTER=$(hostname) PORT=$((20000 + SLURM_JOB_ID % 10000))  # this script runs on the first machine
srun bash -c 'exec accelerate launch --config_file configs/accelerate/machines.yaml \
    --num_machines "$SLURM_NNODES" --num_processes $((SLURM_NNODES * ${SLURM_GPUS_ON_NODE:-1})) \
    --machine_rank "$SLURM_NODEID" --main_process_ip "$MASTER" --main_process_port "$PORT" "$@"' - "$@"
