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
# It ends what it started: without control groups SLURM would lose sight of it, and it would still be at work when the next one starts.
set -m  # what starts in the background is a process group
trap 'scontrol requeue "$SLURM_JOB_ID" && kill -KILL -- -$!' USR1

snakemake=${SNAKEMAKE:-.venv/bin/snakemake}
# A job that was ended leaves its lock behind. It removes that lock when it comes again; another run's lock is respected, so
# nothing is noted where something else is locked at the start, and nothing is unlocked that is not as it was noted.
locked=.snakemake/locked-by-$SLURM_JOB_ID
if [ -s "$locked" ] && [ "$(ls -il --full-time .snakemake/locks 2> /dev/null)" = "$(cat "$locked")" ]; then
    "$snakemake" "$@" --unlock
fi
rm -f "$locked"
if [ -z "$(ls .snakemake/locks 2> /dev/null)" ]; then
    export TOPOSCALE_LOCKED=$locked
fi
"$snakemake" "$@" --cores "$SLURM_CPUS_PER_TASK" --resources "mem_mb=$SLURM_MEM_PER_NODE" --rerun-incomplete &
wait $!
