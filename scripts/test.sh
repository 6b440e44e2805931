#!/usr/bin/env bash
# Runs the tests, suite by suite, goes on after a failure, and prints failed
# and skipped tests and go test's closing lines.
#
# scripts/test.sh [unit] [race] [invariants] [mount]     default: all four
#
# unit        all packages but the real mounts
# race        packages in which things run at the same time, under the race
#             detector, short forms (needs gcc)
# invariants  packages with self-checks, built in with the tag invariants
# mount       the built binary on real mounts: cmd/extfused and
#             cmd/extfused/e2e (needs root and /dev/fuse)
# CRASH_STATES, EXTFUSED_TAR, EXTFUSED_FULL, -seed and so on reach the tests
# through the environment; TESTFLAGS is added to each go test.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin

packages() { go list ./... | grep -Ev '^extfused/cmd/extfused(/e2e)?$'; }
# concurrent packages are those whose sources or tests start goroutines.
concurrent() {
	local dir
	# shellcheck disable=SC2046
	for dir in $(go list -f '{{.Dir}}' $(packages)); do
		grep -qE '(^|[^a-z])go (func|[a-zA-Z_.]+\()|\.Go\(' "$dir"/*.go && echo "$dir"
	done
}
tagged() { grep -rl --include='*.go' '^//go:build.*invariants' . | xargs -r -n1 dirname | sort -u | sed 's,$,/...,'; }

failed=
suite() { # name, go test arguments
	local name=$1
	shift
	echo "=== $name: go test $* ${TESTFLAGS:-}"
	# shellcheck disable=SC2086
	go test -json -count=1 ${TESTFLAGS:-} "$@" 2>&1 | bin/testsum || failed="$failed $name"
}

run() {
	case $1 in
	# shellcheck disable=SC2046
	unit) suite unit -timeout 30m $(packages) ;;
	race)
		if ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
			echo "=== race: skipped, the race detector needs a C compiler (apt-get install gcc libc6-dev)"
			return
		fi
		# shellcheck disable=SC2046
		CGO_ENABLED=1 suite race -race -short -timeout 40m $(concurrent)
		;;
	# shellcheck disable=SC2046
	invariants) suite invariants -tags invariants -short -timeout 30m $(tagged) ./fs/ext4/... ;;
	mount)
		[ -e /dev/fuse ] || echo "There is no /dev/fuse here: the mounts will be skipped."
		suite mount -timeout 60m -p 1 ./cmd/extfused ./cmd/extfused/e2e
		;;
	*)
		echo "unknown suite $1" >&2
		exit 2
		;;
	esac
}

go vet ./... || failed="$failed vet"
go build -o bin/testsum ./scripts/testsum || exit 1
[ $# -gt 0 ] || set -- unit race invariants mount
for s in "$@"; do run "$s"; done
if [ -n "$failed" ]; then
	echo "FAIL:$failed"
	exit 1
fi
echo "PASS: $*"
