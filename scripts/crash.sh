#!/usr/bin/env bash
# Power cuts: records what workloads write, cuts the recording in CRASH_STATES
# (default 5000) places, replays, checks each with e2fsck and against what had
# been fsynced. CRASH_SEED repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin CRASH_STATES=${CRASH_STATES:-5000}
exec go test -count=1 -v -timeout 120m ./fs/ext4/crashtest "$@"
