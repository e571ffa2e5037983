#!/usr/bin/env bash
# A Slurm step that serves on one node and proves it before anybody uses it: sbatch examples/slurm-serve.sh
#SBATCH --job-name=fastfill --nodes=1 --ntasks=1 --gpus-per-node=4 --cpus-per-task=32 --time=08:00:00
# Run in a checkout whose .env `fastfill init` wrote on such a node. Not run on an MI350X by the tests.
set -euo pipefail

export COMPOSE_PROJECT_NAME=fastfill-${SLURM_JOB_ID:?run it with sbatch}
# One job's server ends with the job.
trap 'docker compose down' EXIT
docker compose up --wait --no-build
docker compose run --rm prove
echo "proven: http://$(hostname):${FASTFILL_PORT:-30000}"
docker wait "$COMPOSE_PROJECT_NAME-server-1"
