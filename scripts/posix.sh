#!/usr/bin/env bash
# go-fuse's POSIX conformance tests on a real mount; known differences are
# skipped with their reasons. Needs root and /dev/fuse.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin
exec go test -count=1 -v -timeout 30m -run '^TestPosix' ./cmd/extfused/e2e "$@"
