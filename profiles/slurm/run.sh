#!/bin/bash
# The whole workflow in one SLURM job, on the cores of one node: `sbatch profiles/slurm/run.sh --configfile config/paper.yaml`,
# in the project's folder. What follows the script is handed to snakemake. Options of sbatch before it go on top of these.
#SBATCH --job-name=toposcale
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --output=toposcale-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@60
##SBATCH --partition=main
##SBATCH --account=my_project
##SBATCH --gpus=1

# A minute before its time is up the job goes back into the queue, and goes on from its last checkpoints when it comes again.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1

snakemake=${SNAKEMAKE:-.venv/bin/snakemake}
# The lock that a job of this number left behind when it was ended is its own; another run's lock is respected.
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    "$snakemake" "$@" --unlock
fi
"$snakemake" "$@" --cores "$SLURM_CPUS_PER_TASK" --resources "mem_mb=$SLURM_MEM_PER_NODE" --rerun-incomplete &
wait $!
