#!/usr/bin/env bash
# Power cuts: records what workloads write, cuts the recordings in CRASH_STATES
# (default 10000) distinct states, replays, checks each with e2fsck and against
# what had been promised; CRASH_ORACLES (default 600) of them are replayed by
# e2fsck and by the kernel (as root) too, and the trees compared. CRASH_SEED repeats a run.
# Then EXTFUSED_KILLS (default 50) daemons are killed under load on real mounts.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin CRASH_STATES=${CRASH_STATES:-10000} CRASH_ORACLES=${CRASH_ORACLES:-600} EXTFUSED_KILLS=${EXTFUSED_KILLS:-50}
go test -count=1 -v -timeout 60m -run TestCrash ./fs/ext4/crashtest "$@"
exec go test -count=1 -v -timeout 60m -run 'TestKill$' ./cmd/extfused/e2e "$@"
