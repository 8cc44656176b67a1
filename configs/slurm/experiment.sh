#!/bin/bash
# An experiment as an array of jobs, each of which trains and measures a share of its methods, folds and seeds:
#   sbatch configs/slurm/experiment.sh --config configs/evidence/scifact.yaml
# The folders of lists, models and runs are on a disk that all machines see. When all jobs are through, the same command
# without --share finds every trial finished and makes the tables:
#   sbatch --dependency=afterok:JOB --wrap "rerank experiment --config configs/evidence/scifact.yaml"
# A job that reaches its time limit gets SIGTERM two minutes before, and writes its checkpoints; submitted again, it resumes.
# Another scheduler needs the last line alone: a number from 0, and how many there are.
#SBATCH --job-name=rerank
#SBATCH --array=0-15
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
exec rerank experiment "$@" --share "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
