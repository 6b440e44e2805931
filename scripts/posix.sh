#!/usr/bin/env bash
# Conformance on real mounts, at length: each call compared with the kernel's
# ext4, random operations on both, real programs, data torture, 32 threads on the
# same names under the race detector. Known differences are skipped with their
# reasons. Needs root and /dev/fuse; takes about 45 minutes. POSIX_SHORT=1 does
# the comparison of calls only. Arguments are go test's.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin
tests='^Test(Posix|Random|Blocks|Programs|DataTorture|NamespaceStorm)'
[ -z "${POSIX_SHORT:-}" ] && export EXTFUSED_FULL=1 || tests='^TestPosix'
exec go test -count=1 -v -timeout 120m -run "$tests" ./cmd/extfused/e2e "$@"
